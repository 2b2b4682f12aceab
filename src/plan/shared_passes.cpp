#include "plan/shared_passes.h"

#include <algorithm>
#include <utility>

#include "plan/even_passes.h"
#include "plan/lanes.h"
#include "schedule/pipeline_schedule.h"
#include "strategy/pass.h"

namespace sluice::plan {
namespace {

using strategy::PipelinePlan;
using strategy::Unit;

constexpr int kFurtherPasses = 2;

// Whole sequences on lanes of their own, by share group, and everything else.
struct Loads {
  std::vector<std::vector<PackItem>> items;  // by group
  std::vector<Unit> others;
};

Loads loads_of(const PipelinePlan& plan, const SchemeCost& scheme) {
  const int share = plan.pipeline.scheme.share;
  Loads loads;
  loads.items.resize(static_cast<size_t>(plan.pipeline.scheme.cp / share));
  for (const Unit& unit : plan.units) {
    if (unit.lanes > 1) {
      loads.others.push_back(unit);
      continue;
    }
    for (const strategy::UnitSequence& whole : unit.sequences) {
      loads.items[static_cast<size_t>(unit.first_lane / share)].push_back(
          {whole.sequence, whole.length_tokens, scheme.unit_ns(scheme.work_of(whole.length_tokens), 1)});
    }
  }
  return loads;
}

// The group's micro-batches, a multiple of the share where there are sequences enough, those with the most
// work first.
Bins even_bins(const std::vector<PackItem>& items, int share, int64_t capacity_tokens, int further) {
  Bins bins = first_fit_decreasing(items, capacity_tokens);
  const auto passes = (static_cast<int>(bins.size()) + share - 1) / share + further;
  const int count = std::min(static_cast<int>(items.size()), passes * share);
  if (const auto balanced = balance(items, count, capacity_tokens)) bins = *balanced;
  const auto work_ns = [&](const std::vector<int>& bin) {
    int64_t work = 0;
    for (const int item : bin) work += items[static_cast<size_t>(item)].work_ns;
    return work;
  };
  std::ranges::stable_sort(bins, std::greater<>(), work_ns);
  return bins;
}

PackedPipeline timed(PipelinePlan plan, const SchemeCost& scheme, const cost::CostModel& cost) {
  const schedule::PipelineLoad load{.stages = plan.pipeline.scheme.pp,
                                    .lanes = plan.pipeline.scheme.cp,
                                    .credit_tokens = scheme.credit_tokens(),
                                    .units = schedule::timed_units(plan, cost)};
  return {std::move(plan), schedule::schedule_pipeline(load).makespan_ns};
}

}  // namespace

PackedPipeline pack_shared(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                           const cost::CostModel& cost, std::span<const int64_t> lengths,
                           std::span<const int> members, const PackOptions& options) {
  if (pipeline.scheme.pp == 1)
    return *pack_even(pipeline, scheme, cost, lengths, members, {.enough_ns = options.enough_ns});
  const int share = pipeline.scheme.share;
  const auto passed = [&](PipelinePlan plan) {
    strategy::assign_passes(plan);
    return timed(std::move(plan), scheme, cost);
  };
  PackedPipeline best = passed(pack_lanes(pipeline, scheme, cost, lengths, members, {})->plan);
  const Loads loads = loads_of(best.plan, scheme);
  for (int further = 0; further <= kFurtherPasses; ++further) {
    PipelinePlan plan = best.plan;
    plan.units = loads.others;
    for (size_t group = 0; group < loads.items.size(); ++group) {
      const std::vector<PackItem>& items = loads.items[group];
      if (items.empty()) continue;
      const Bins bins = even_bins(items, share, scheme.lane_max_len_tokens(), further);
      for (size_t b = 0; b < bins.size(); ++b) {
        Unit& unit = plan.units.emplace_back(Unit{
            .first_lane = static_cast<int>(group) * share + static_cast<int>(b) % share, .sequences = {}});
        for (const int item : bins[b]) {
          const PackItem& of = items[static_cast<size_t>(item)];
          unit.sequences.push_back({of.sequence, of.tokens});
        }
      }
    }
    plan.units = strategy::in_injection_order(std::move(plan.units), pipeline.scheme.cp);
    PackedPipeline next = passed(std::move(plan));
    if (next.makespan_ns < best.makespan_ns) best = std::move(next);
  }
  return best;
}

}  // namespace sluice::plan
