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

// Times of one lane on the stage that is busy longest.
struct Taken {
  int64_t busy_ns = 0;
  int64_t exposed_ns = 0;
};

Taken taken_by(const PipelinePlan& pipeline, const strategy::PipelineMicroBatch& micro_batch,
               const cost::CostModel& cost) {
  PipelinePlan alone{pipeline.pipeline, pipeline.max_len_tokens, {micro_batch}};
  strategy::assign_passes(alone);
  const schedule::TimedMicroBatch times = schedule::timed_micro_batches(alone, cost).front();
  Taken most;
  for (size_t s = 0; s < times.forward_ns.size(); ++s) {
    const int64_t busy_ns = times.forward_ns[s] + times.backward_input_ns[s] + times.backward_weight_ns[s];
    if (busy_ns <= most.busy_ns) continue;
    most.busy_ns = busy_ns;
    most.exposed_ns = times.forward_cp_exchange_ns.empty()
                          ? 0
                          : times.forward_cp_exchange_ns[s] + times.backward_cp_exchange_ns[s];
  }
  return most;
}

// The micro-batch under every exchange that its lanes can run.
std::vector<strategy::PipelineMicroBatch> exchanging_micro_batches(
    const strategy::PipelineMicroBatch& micro_batch, int64_t heads, int lanes_of_node) {
  std::vector<strategy::PipelineMicroBatch> micro_batches;
  const auto add = [&](Exchange exchange, int nested_lanes) {
    micro_batches.push_back(micro_batch);
    micro_batches.back().exchange = exchange;
    micro_batches.back().nested_lanes = nested_lanes;
  };
  add(Exchange::kRing, 0);
  if (micro_batch.lanes > 1 && micro_batch.lanes <= heads) add(Exchange::kHeads, 0);
  for (int group = 2; group < micro_batch.lanes && group <= heads && group <= lanes_of_node; ++group) {
    if (micro_batch.lanes % group == 0) add(Exchange::kNested, group);
  }
  return micro_batches;
}

class Cuts {
 public:
  Cuts(const PipelinePlan& pipeline, const cost::CostModel& cost)
      : pipeline_(pipeline),
        cost_(cost),
        heads_(model::most_head_lanes(cost.options().model, pipeline.pipeline.scheme.tp)),
        lanes_of_node_(cost.options().topology.lanes_of_node(pipeline.pipeline.scheme.tp)) {}

  ExplainedCut explain(const strategy::PipelineMicroBatch& micro_batch) const {
    ExplainedCut cut{.lanes = micro_batch.lanes, .exchange = name_of(micro_batch.exchange)};
    if (micro_batch.exchange == Exchange::kNested) cut.exchange += text(" ", micro_batch.nested_lanes);
    for (const strategy::MicroBatchSequence& sequence : micro_batch.sequences) {
      cut.longest_tokens = std::max(cut.longest_tokens, sequence.length_tokens);
      ++cut.sequences;
    }
    cut.busy_ns = taken_by(pipeline_, micro_batch, cost_).busy_ns;
    cut.fewer_ns = on_lanes(micro_batch, micro_batch.lanes - 1);
    cut.more_ns = on_lanes(micro_batch, micro_batch.lanes + 1);
    for (const strategy::PipelineMicroBatch& other :
         exchanging_micro_batches(micro_batch, heads_, lanes_of_node_)) {
      std::optional<int64_t>& exposed_ns = other.exchange == Exchange::kRing    ? cut.ring_ns
                                           : other.exchange == Exchange::kHeads ? cut.heads_ns
                                                                                : cut.nested_ns;
      const int64_t ns = taken_by(pipeline_, other, cost_).exposed_ns;
      exposed_ns = std::min(exposed_ns.value_or(ns), ns);
    }
    return cut;
  }

 private:
  std::optional<int64_t> on_lanes(strategy::PipelineMicroBatch micro_batch, int lanes) const {
    if (!micro_batch.own.empty()) return std::nullopt;
    micro_batch.lanes = lanes;
    micro_batch.first_lane = std::min(micro_batch.first_lane, pipeline_.pipeline.scheme.cp - lanes);
    if (micro_batch.first_lane < 0 || micro_batch.tokens() > pipeline_.max_len_tokens) return std::nullopt;
    if (micro_batch.tokens_on(micro_batch.first_lane + lanes / 2) == 0) return std::nullopt;
    std::optional<int64_t> least_ns;
    for (const strategy::PipelineMicroBatch& other :
         exchanging_micro_batches(micro_batch, heads_, lanes_of_node_)) {
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
    for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
      if (micro_batch.lanes > 1) cuts.push_back(of_pipeline.explain(micro_batch));
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
  return text(human_count(static_cast<int64_t>(cuts.size()), "micro-batch is", "micro-batches are"),
              " cut over several lanes. A sequence takes the fewest that hold it and end in time; of the "
              "exchanges that it may take it takes the one that keeps its lanes waiting least. What a lane "
              "takes, what it would take on one lane fewer "
              "and one more, and how long each exchange would keep it waiting:\n\n",
              base::table_text(rows, "rrrlrrrrrr"));
}

}  // namespace sluice::report
