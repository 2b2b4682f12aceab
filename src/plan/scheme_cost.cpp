#include "plan/scheme_cost.h"

#include <algorithm>

#include "cost/fsdp_cost.h"

namespace sluice::plan {

SchemeCost::SchemeCost(const strategy::Scheme& scheme, const cost::CostModel& cost, int world_size)
    : figures_(scheme, cost, world_size) {
  for (const SchemeFigures::Stage& stage : figures_.stages) {
    if (std::find(stages_.begin(), stages_.end(), stage.all) == stages_.end()) stages_.push_back(stage.all);
  }
  if (scheme.fsdp > 1) add_gathers();
}

// Uses the first stage: it has the most layers, apart from those that the embedding's time replaces.
void SchemeCost::add_gathers() {
  using cost::CellKind;
  const cost::FsdpCost share(cost(), scheme(), strategy::fsdp_runs(scheme(), cost().options().topology));
  const base::Interval run = cost().stage_run(scheme(), 0);
  constexpr int64_t kLongNs = cost::kLongestNs / 2;  // leaves room for additions
  for (const CellKind kind : {CellKind::kForward, CellKind::kBackward}) {
    gathering_ns_ += share.cell_ns(kind, run, {}, 0);
    gather_ends_ns_ += share.cell_ns(kind, run, {}, kLongNs) - kLongNs;
  }
}

int64_t SchemeCost::gathers_ns(const cost::Work& work) const {
  return std::max(gather_ends_ns_, gathering_ns_ - load_ns(work) - micro_batch_ns());
}

cost::Work SchemeCost::fullest_share(int64_t length, int lanes, int64_t window) {
  const int64_t chunks = int64_t{2} * lanes;
  return cost::Work::of_lane(lanes == 1 ? length : (length + chunks - 1) / chunks * 2, length, lanes, window);
}

SchemeCost::Halves SchemeCost::halves(const cost::Work& work, int lanes) const {
  return on(lanes).halves(work);
}

SchemeCost::OnLanes::OnLanes(const SchemeFigures& figures, int lanes) : figures_(&figures), lanes_(lanes) {
  const strategy::Scheme& scheme = figures.scheme;
  const auto place = cost::LanePlace::aligned(lanes, scheme.tp, figures.cost.options().topology);
  std::vector<int> kinds;  // one stage of each kind
  for (int stage = 0; stage < scheme.pp; ++stage) {
    const SchemeFigures::Stage& cells = figures.stage(stage);
    const auto alike = std::ranges::find_if(kinds, [&](int other) {
      const bool as_long =
          cells.forward == figures.stage(other).forward && cells.all == figures.stage(other).all;
      return as_long && (lanes == 1 || figures.exchanges->alike(stage, other));
    });
    if (alike != kinds.end()) {
      ++stages_[static_cast<size_t>(alike - kinds.begin())].count;
      continue;
    }
    kinds.push_back(stage);
    Stage& added = stages_.emplace_back(Stage{.cells = &cells, .exchanges = std::nullopt});
    if (lanes > 1) added.exchanges.emplace(*figures.exchanges, stage, place, figures.lane_max_len_tokens);
  }
}

SchemeCost::Halves SchemeCost::OnLanes::halves(const cost::Work& work) const {
  Halves slowest;
  for (const Stage& stage : stages_) {
    const auto [forward_ns, backward_ns] = stage.exposed(work);
    Halves next{.forward_ns = stage.cells->forward.of_work(work)};
    next.backward_ns = stage.cells->all.of_work(work) - next.forward_ns + backward_ns;
    next.forward_ns += forward_ns;
    if (next.both_ns() > slowest.both_ns()) slowest = next;
  }
  return slowest;
}

int64_t SchemeCost::OnLanes::most_tokens(const cost::Work& shared) const {
  int64_t most = figures_->lane_max_len_tokens;
  for (const Stage& stage : stages_) {
    if (stage.exchanges) most = std::min(most, stage.exchanges->most_tokens(shared));
  }
  return most;
}

int64_t SchemeCost::OnLanes::path_ns(int64_t length) const {
  const cost::Work work = share_of(length);
  int64_t path_ns = figures_->path_ns(work);
  for (const Stage& stage : stages_) path_ns += stage.count * stage.exposed(work).both_ns();
  return path_ns;
}

int64_t SchemeCost::load_ns(const cost::Work& work) const {
  int64_t slowest = 0;
  for (const cost::Quadratic& stage : stages_) slowest = std::max(slowest, stage.of_work(work) - stage.c_ns);
  return slowest;
}

int64_t SchemeCost::sequence_ns(int64_t length) const {
  const cost::Work work = work_of(length);
  int64_t slowest = 0;
  for (const cost::Quadratic& stage : stages_) {
    const auto share_ns =
        static_cast<int64_t>(cost::Wide{stage.c_ns} * length / std::max<int64_t>(lane_max_len_tokens(), 1));
    slowest = std::max(slowest, (stage.of_work(work) - stage.c_ns + share_ns) / scheme().cp);
  }
  return slowest;
}

int64_t SchemeCost::micro_batch_ns() const {
  int64_t slowest = 0;
  for (const cost::Quadratic& stage : stages_) slowest = std::max(slowest, stage.c_ns);
  return slowest;
}

SchemeCosts::SchemeCosts(std::span<const strategy::Strategy> strategies, const cost::CostModel& cost,
                         int world_size) {
  for (const strategy::Strategy& strategy : strategies) {
    for (const strategy::Pipeline& pipeline : strategy.pipelines) add(pipeline, cost, world_size);
  }
}

void SchemeCosts::add(const strategy::Pipeline& pipeline, const cost::CostModel& cost, int world_size) {
  if (by_kind_.contains(kind_of(pipeline))) return;
  by_kind_.emplace(kind_of(pipeline), SchemeCost(pipeline.scheme, cost.on(pipeline), world_size));
}

}  // namespace sluice::plan
