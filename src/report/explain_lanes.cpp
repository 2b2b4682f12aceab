#include "report/explain_lanes.h"

#include <algorithm>

#include "base/text.h"
#include "model/head_parts.h"
#include "schedule/pipeline_schedule.h"
#include "strategy/pass.h"

namespace sluice::report {

using base::human_count;
using base::human_duration;
using base::text;
using strategy::Exchange;
using strategy::PipelinePlan;

namespace {

// Of one lane on the stage that is busy longest.
struct Taken {
  int64_t busy_ns = 0;
  int64_t exposed_ns = 0;
};

Taken taken_by(const PipelinePlan& pipeline, const strategy::Unit& unit, const cost::CostModel& cost) {
  PipelinePlan alone{pipeline.pipeline, pipeline.max_len_tokens, {unit}};
  strategy::assign_passes(alone);
  const schedule::TimedUnit times = schedule::timed_units(alone, cost).front();
  Taken most;
  for (size_t s = 0; s < times.forward_ns.size(); ++s) {
    const int64_t busy_ns = times.forward_ns[s] + times.backward_input_ns[s] + times.backward_weight_ns[s];
    if (busy_ns <= most.busy_ns) continue;
    most.busy_ns = busy_ns;
    most.exposed_ns =
        times.forward_ring_ns.empty() ? 0 : times.forward_ring_ns[s] + times.backward_ring_ns[s];
  }
  return most;
}

// The unit under every exchange that its lanes can run.
std::vector<strategy::Unit> exchanging_units(const strategy::Unit& unit, int64_t heads, int lanes_of_node) {
  std::vector<strategy::Unit> units;
  const auto add = [&](Exchange exchange, int nested_lanes) {
    units.push_back(unit);
    units.back().exchange = exchange;
    units.back().nested_lanes = nested_lanes;
  };
  add(Exchange::kRing, 0);
  if (unit.lanes > 1 && unit.lanes <= heads) add(Exchange::kHeads, 0);
  for (int group = 2; group < unit.lanes && group <= heads && group <= lanes_of_node; ++group) {
    if (unit.lanes % group == 0) add(Exchange::kNested, group);
  }
  return units;
}

class Cuts {
 public:
  Cuts(const PipelinePlan& pipeline, const cost::CostModel& cost)
      : pipeline_(pipeline),
        cost_(cost),
        heads_(model::most_head_lanes(cost.options().shape, pipeline.pipeline.scheme.tp)),
        lanes_of_node_(cost.options().topology.lanes_of_node(pipeline.pipeline.scheme.tp)) {}

  ExplainedCut explain(const strategy::Unit& unit) const {
    ExplainedCut cut{.lanes = unit.lanes, .exchange = name_of(unit.exchange)};
    if (unit.exchange == Exchange::kNested) cut.exchange += text(" ", unit.nested_lanes);
    for (const strategy::UnitSequence& sequence : unit.sequences) {
      cut.longest_tokens = std::max(cut.longest_tokens, sequence.length_tokens);
      ++cut.sequences;
    }
    cut.busy_ns = taken_by(pipeline_, unit, cost_).busy_ns;
    cut.fewer_ns = on_lanes(unit, unit.lanes - 1);
    cut.more_ns = on_lanes(unit, unit.lanes + 1);
    for (const strategy::Unit& other : exchanging_units(unit, heads_, lanes_of_node_)) {
      std::optional<int64_t>& exposed_ns = other.exchange == Exchange::kRing    ? cut.ring_ns
                                           : other.exchange == Exchange::kHeads ? cut.heads_ns
                                                                                : cut.nested_ns;
      const int64_t ns = taken_by(pipeline_, other, cost_).exposed_ns;
      exposed_ns = std::min(exposed_ns.value_or(ns), ns);
    }
    return cut;
  }

 private:
  std::optional<int64_t> on_lanes(strategy::Unit unit, int lanes) const {
    if (!unit.own.empty()) return std::nullopt;
    unit.lanes = lanes;
    unit.first_lane = std::min(unit.first_lane, pipeline_.pipeline.scheme.cp - lanes);
    if (unit.first_lane < 0 || unit.tokens() > pipeline_.max_len_tokens) return std::nullopt;
    if (unit.tokens_on(unit.first_lane + lanes / 2) == 0) return std::nullopt;
    std::optional<int64_t> least_ns;
    for (const strategy::Unit& other : exchanging_units(unit, heads_, lanes_of_node_)) {
      const int64_t ns = taken_by(pipeline_, other, cost_).busy_ns;
      least_ns = std::min(least_ns.value_or(ns), ns);
    }
    return least_ns;
  }

  const PipelinePlan& pipeline_;
  const cost::CostModel& cost_;
  int64_t heads_;
  int lanes_of_node_;
};

std::string duration_or_none(const std::optional<int64_t>& ns) { return ns ? human_duration(*ns) : "-"; }

}  // namespace

std::vector<ExplainedCut> explain_cuts(const strategy::StepPlan& plan, const cost::CostModel& cost) {
  std::vector<ExplainedCut> cuts;
  for (const PipelinePlan& pipeline : plan.pipelines) {
    const Cuts of_pipeline(pipeline, cost);
    for (const strategy::Unit& unit : pipeline.units) {
      if (unit.lanes > 1) cuts.push_back(of_pipeline.explain(unit));
    }
  }
  std::ranges::stable_sort(cuts, std::ranges::greater{}, &ExplainedCut::longest_tokens);
  return cuts;
}

std::string cuts_text(const std::vector<ExplainedCut>& cuts) {
  if (cuts.empty()) return "";
  constexpr size_t kMostRows = 8;
  std::vector<std::vector<std::string>> rows = {{"  longest", "sequences", "lanes", "exchange", "takes",
                                                 "one fewer", "one more", "ring", "heads", "nested"}};
  for (size_t i = 0; i < std::min(cuts.size(), kMostRows); ++i) {
    const ExplainedCut& cut = cuts[i];
    rows.push_back({human_count(cut.longest_tokens), human_count(cut.sequences), text(cut.lanes),
                    cut.exchange, human_duration(cut.busy_ns), duration_or_none(cut.fewer_ns),
                    duration_or_none(cut.more_ns), duration_or_none(cut.ring_ns),
                    duration_or_none(cut.heads_ns), duration_or_none(cut.nested_ns)});
  }
  return text(human_count(static_cast<int64_t>(cuts.size()), "unit is", "units are"),
              " cut over several lanes. A sequence takes the fewest that hold it and end in time; of the "
              "exchanges that it may take it takes the one that keeps its lanes waiting least. What a lane "
              "takes, what it would take on one lane fewer "
              "and one more, and how long each exchange would keep it waiting:\n\n",
              base::table_text(rows, "rrrlrrrrrr"));
}

}  // namespace sluice::report
