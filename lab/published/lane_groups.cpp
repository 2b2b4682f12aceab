#include "published/lane_groups.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "cost/memory_cost.h"
#include "plan/bins.h"
#include "schedule/pipeline_schedule.h"
#include "strategy/pass.h"

namespace sluice::published {
namespace {

constexpr int kPackHalvings = 3;  // halvings of the longest micro-batch

strategy::PipelineMicroBatch micro_batch_of(const LaneGroup& group, int first_lane, int ring,
                                            const GroupProgram& program, std::span<const int64_t> lengths) {
  strategy::PipelineMicroBatch micro_batch{
      .first_lane = first_lane, .lanes = group.lanes, .sequences = {}, .memory = program.memory};
  int64_t longest = 0;
  for (const int s : group.sequences) {
    micro_batch.sequences.push_back({s, lengths[static_cast<size_t>(s)]});
    longest = std::max(longest, micro_batch.sequences.back().length_tokens);
  }
  while (micro_batch.lanes > 1 && longest < 2 * micro_batch.lanes)
    micro_batch.lanes /= 2;  // each lane needs a token
  if (micro_batch.lanes == 1) return micro_batch;
  micro_batch.exchange = program.exchange;
  micro_batch.number = ring;
  return micro_batch;
}

plan::Bins packs_of(const StaticGroups& choice, std::span<const int64_t> lengths) {
  std::vector<plan::PackItem> items;
  int64_t capacity = choice.micro_batch_tokens;
  for (size_t s = 0; s < lengths.size(); ++s) {
    items.push_back(
        {.sequence = static_cast<int>(s), .tokens = tokens_on_lane(lengths[s], choice.group_lanes)});
    capacity = std::max(capacity, items.back().tokens);
  }
  return plan::first_fit_decreasing(items, capacity);
}

int64_t mean_ns(const StaticGroups& choice, std::span<const std::vector<int64_t>> batches,
                const cost::CostModel& cost, int world_size) {
  int64_t total_ns = 0;
  for (const std::vector<int64_t>& batch : batches)
    total_ns += static_groups_plan(choice, batch, cost, world_size).estimated_ns;
  return total_ns / static_cast<int64_t>(std::max<size_t>(batches.size(), 1));
}

}  // namespace

strategy::StepPlan lane_groups_plan(const GroupProgram& program,
                                    std::span<const std::vector<LaneGroup>> micro_batches,
                                    std::span<const int64_t> lengths, const cost::CostModel& cost,
                                    int world_size) {
  const strategy::Scheme& scheme = program.scheme;
  strategy::StepPlan plan;
  for (const int64_t length : lengths) plan.sequences.push_back({.length_tokens = length});
  strategy::PipelinePlan pipeline{
      .pipeline = strategy::parse_strategy(to_text(scheme), world_size).pipelines.front(),
      .max_len_tokens = cost::MemoryCost(cost.under(program.memory), scheme).max_len_tokens(world_size),
      .micro_batches = {}};
  const bool all_share = scheme.fsdp > 1 && scheme.fsdp == scheme.cp;
  int pass = 0;
  for (const std::vector<LaneGroup>& groups : micro_batches) {
    int lane = 0;
    const size_t before = pipeline.micro_batches.size();
    for (const LaneGroup& group : groups) {
      if (!group.sequences.empty()) {
        const int ring = static_cast<int>(pipeline.micro_batches.size());
        pipeline.micro_batches.push_back(micro_batch_of(group, lane, ring, program, lengths));
        if (all_share) pipeline.micro_batches.back().pass = pass;
      }
      lane += group.lanes;
    }
    if (pipeline.micro_batches.size() > before) ++pass;
  }
  pipeline.micro_batches = strategy::in_injection_order(std::move(pipeline.micro_batches), scheme.cp);
  if (scheme.fsdp > 1 && !all_share) strategy::assign_passes(pipeline);
  plan.estimated_ns =
      schedule::schedule_pipeline(schedule::pipeline_load(pipeline, cost, world_size)).makespan_ns;
  plan.pipelines.push_back(std::move(pipeline));
  return plan;
}

int64_t tokens_on_lane(int64_t length, int lanes) {
  return lanes == 1 ? length : 2 * ((length + 2 * lanes - 1) / (2 * lanes));
}

int64_t capacity_tokens(const GroupProgram& program, int lanes, const cost::CostModel& cost, int world_size) {
  const cost::CostModel own = cost.under(program.memory);
  const int64_t most = cost::MemoryCost(own, program.scheme).max_len_tokens(world_size);
  if (lanes == 1 || program.exchange == strategy::Exchange::kRing) return most;
  const cost::Exchanges exchanges(program.scheme, own);
  int64_t fits = 0;
  for (int64_t over = most + 1; fits + 1 < over;) {
    const int64_t middle = fits + (over - fits) / 2;
    (exchanges.credit_tokens({strategy::Exchange::kHeads}, lanes, middle) <= most ? fits : over) = middle;
  }
  return fits;
}

strategy::StepPlan static_groups_plan(const StaticGroups& choice, std::span<const int64_t> lengths,
                                      const cost::CostModel& cost, int world_size) {
  const auto groups = static_cast<size_t>(choice.program.scheme.cp / choice.group_lanes);
  std::vector<std::vector<LaneGroup>> micro_batches;
  const plan::Bins packs = packs_of(choice, lengths);
  for (size_t pack = 0; pack < packs.size(); ++pack) {
    if (pack % groups == 0) micro_batches.emplace_back(groups, LaneGroup{.lanes = choice.group_lanes});
    micro_batches.back()[pack % groups].sequences = packs[pack];
  }
  return lane_groups_plan(choice.program, micro_batches, lengths, cost, world_size);
}

int most_group_lanes(const GroupProgram& program, const cost::CostModel& cost, int most_lanes) {
  const int64_t heads = model::most_head_lanes(cost.options().model, program.scheme.tp);
  int lanes = 1;
  while (2 * lanes <= most_lanes &&
         (program.exchange == strategy::Exchange::kRing || heads % (2 * lanes) == 0)) {
    lanes *= 2;
  }
  return lanes;
}

std::optional<StaticGroups> best_static_groups(const GroupProgram& program, int64_t context_length,
                                               std::span<const std::vector<int64_t>> sample_batches,
                                               const cost::CostModel& cost, int world_size) {
  std::optional<StaticGroups> best;
  const int widest = most_group_lanes(program, cost, program.scheme.cp);
  for (int lanes = 1; lanes <= widest && program.scheme.cp % lanes == 0; lanes *= 2) {
    const int64_t held = capacity_tokens(program, lanes, cost, world_size);
    const int64_t context = tokens_on_lane(context_length, lanes);
    if (context > held) continue;
    std::vector<int64_t> sizes = {context};
    for (int halved = 0; halved <= kPackHalvings; ++halved)
      sizes.push_back(std::max<int64_t>(1, held >> halved));
    for (const int64_t tokens : sizes) {
      StaticGroups choice{.program = program, .group_lanes = lanes, .micro_batch_tokens = tokens};
      choice.mean_ns = mean_ns(choice, sample_batches, cost, world_size);
      if (!best || choice.mean_ns < best->mean_ns) best = choice;
    }
  }
  return best;
}

}  // namespace sluice::published
