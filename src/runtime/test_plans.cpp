// For tests: hand-made plans (runtime/test_cluster.h).
#include <algorithm>
#include <map>
#include <utility>

#include "base/rng.h"
#include "runtime/test_cluster.h"
#include "strategy/pass.h"

namespace sluice::runtime {

namespace {

strategy::StepPlan empty_plan(int64_t step, const std::vector<strategy::Sequence>& sequences,
                              const strategy::Strategy& strategy, int64_t max_tokens) {
  strategy::StepPlan plan;
  plan.step = step;
  plan.sequences = sequences;
  for (const strategy::Pipeline& pipeline : strategy.pipelines)
    plan.pipelines.push_back({pipeline, max_tokens, {}});
  return plan;
}

strategy::MicroBatchSequence micro_batch_sequence(const strategy::StepPlan& plan, size_t sequence) {
  return strategy::micro_batch_sequence(static_cast<int32_t>(sequence), plan.sequences[sequence]);
}

// Gives the lanes [first, first + lanes) a micro-batch of one sequence, whose index becomes its number.
void add_ring(strategy::StepPlan& plan, size_t pipeline, size_t sequence, int first, int lanes) {
  plan.pipelines[pipeline].micro_batches.push_back({.first_lane = first,
                                                    .lanes = lanes,
                                                    .sequences = {micro_batch_sequence(plan, sequence)},
                                                    .number = static_cast<int>(sequence)});
}

// The last micro-batch of a lane; null if it has none.
strategy::PipelineMicroBatch* last_on(strategy::PipelinePlan& plan, int lane) {
  const auto last =
      std::find_if(plan.micro_batches.rbegin(), plan.micro_batches.rend(),
                   [&](const strategy::PipelineMicroBatch& micro_batch) { return micro_batch.covers(lane); });
  return last == plan.micro_batches.rend() ? nullptr : &*last;
}

// Adds a whole sequence to a lane's part of a micro-batch.
void join(strategy::PipelineMicroBatch& micro_batch, int lane, const strategy::MicroBatchSequence& sequence) {
  if (micro_batch.lanes == 1) return micro_batch.sequences.push_back(sequence);
  micro_batch.own.resize(static_cast<size_t>(micro_batch.lanes));
  micro_batch.own[static_cast<size_t>(lane - micro_batch.first_lane)].push_back(sequence);
}

void add_whole(strategy::StepPlan& plan, size_t pipeline, size_t sequence, int lane) {
  strategy::PipelinePlan& to = plan.pipelines[pipeline];
  const strategy::MicroBatchSequence added = micro_batch_sequence(plan, sequence);
  strategy::PipelineMicroBatch* last = last_on(to, lane);
  if (last != nullptr && last->tokens_on(lane) + added.length_tokens <= to.max_len_tokens)
    return join(*last, lane, added);
  to.micro_batches.push_back({.first_lane = lane, .sequences = {added}});
}

void put_in_order(strategy::StepPlan& plan) {
  for (strategy::PipelinePlan& pipeline : plan.pipelines)
    pipeline.micro_batches =
        strategy::in_injection_order(std::move(pipeline.micro_batches), pipeline.pipeline.scheme.cp);
}

}  // namespace

strategy::StepPlan dealt_plan(int64_t step, const std::vector<strategy::Sequence>& sequences,
                              const strategy::Strategy& strategy, int64_t max_tokens) {
  strategy::StepPlan plan = empty_plan(step, sequences, strategy, max_tokens);
  base::Rng rng(11, static_cast<uint64_t>(step));
  for (size_t i = 0; i < sequences.size(); ++i) {
    const size_t pipeline = i % plan.pipelines.size();
    const int cp = plan.pipelines[pipeline].pipeline.scheme.cp;
    const int first = static_cast<int>(rng.below(static_cast<uint64_t>(cp)));
    const int lanes = static_cast<int>(rng.between(1, cp - first));
    if (lanes > 1 && sequences[i].length_tokens >= 2 * lanes && rng.below(2) == 0) {
      add_ring(plan, pipeline, i, first, lanes);
    } else {
      add_whole(plan, pipeline, i, first);
    }
  }
  put_in_order(plan);
  return plan;
}

strategy::StepPlan ringed_plan(int64_t step, const std::vector<strategy::Sequence>& sequences,
                               const strategy::Strategy& strategy, int64_t max_tokens) {
  strategy::StepPlan plan = empty_plan(step, sequences, strategy, max_tokens);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const size_t pipeline = i % plan.pipelines.size();
    const int cp = plan.pipelines[pipeline].pipeline.scheme.cp;
    const auto lanes = static_cast<int>(std::min<int64_t>(cp, sequences[i].length_tokens / 2));
    if (lanes > 1) add_ring(plan, pipeline, i, cp - lanes, lanes);
    if (lanes <= 1) add_whole(plan, pipeline, i, 0);
  }
  put_in_order(plan);
  return plan;
}

strategy::StepPlan uneven_plan(int64_t step, const std::vector<strategy::Sequence>& sequences,
                               const strategy::Strategy& strategy, int64_t max_tokens) {
  strategy::StepPlan plan = empty_plan(step, sequences, strategy, max_tokens);
  const auto longest = std::ranges::max_element(sequences, {}, &strategy::Sequence::length_tokens);
  const auto shared = static_cast<size_t>(longest - sequences.begin());
  add_ring(plan, 0, shared, 0, 3);
  for (size_t i = 0, own = 0; i < sequences.size(); ++i) {
    if (i == shared) continue;
    const int lane = own++ < 2 ? 1 : 2;
    strategy::PipelinePlan& to = plan.pipelines[0];
    const auto on_lane = std::ranges::count_if(
        to.micro_batches, [&](const auto& micro_batch) { return micro_batch.covers(lane); });
    if (on_lane < (lane == 1 ? 3 : 8)) {
      to.micro_batches.push_back({.first_lane = lane, .sequences = {micro_batch_sequence(plan, i)}});
    } else {
      join(*last_on(to, lane), lane, micro_batch_sequence(plan, i));
    }
  }
  put_in_order(plan);
  return plan;
}

strategy::StepPlan packed_plan(int64_t step, const std::vector<strategy::Sequence>& sequences,
                               const strategy::Strategy& strategy, int64_t max_tokens) {
  strategy::StepPlan plan = empty_plan(step, sequences, strategy, max_tokens);
  base::Rng rng(13, static_cast<uint64_t>(step));
  for (size_t i = 0; i < sequences.size(); ++i) {
    const size_t pipeline = i % plan.pipelines.size();
    strategy::PipelinePlan& to = plan.pipelines[pipeline];
    const int cp = to.pipeline.scheme.cp;
    const strategy::MicroBatchSequence added = micro_batch_sequence(plan, i);
    if (!to.micro_batches.empty() && to.micro_batches.back().lanes > 1 &&
        to.micro_batches.back().tokens() + (added.length_tokens + 1) / 2 <= max_tokens) {
      to.micro_batches.back().sequences.push_back(added);
      continue;
    }
    const auto most = static_cast<int>(std::min<int64_t>(cp, added.length_tokens / 2));
    const int lanes = most > 1 ? static_cast<int>(rng.between(2, most)) : 1;
    const int first = static_cast<int>(rng.between(0, cp - lanes));
    if (lanes > 1) add_ring(plan, pipeline, i, first, lanes);
    if (lanes == 1) to.micro_batches.push_back({.first_lane = first, .sequences = {added}});
  }
  put_in_order(plan);
  return plan;
}

}  // namespace sluice::runtime
