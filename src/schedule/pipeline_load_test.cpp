#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "cost/memory_cost.h"
#include "model/outline.h"
#include "schedule/micro_batch_table.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::schedule {
namespace {

using strategy::PipelinePlan;

// Forward a·l² + l + 7, input gradient twice that, weight gradient 3 a token; a transfer takes a nanosecond
// for 64 bytes beside its latency.
cost::CostModel plain_cost(double a) {
  cost::CostModel::Options options{.model = model::Outline{.layers = 4,
                                                           .hidden = 16,
                                                           .heads = 2,
                                                           .kv_heads = 2,
                                                           .head_dim = 8,
                                                           .ffn_hidden = 32,
                                                           .vocab = 64}};
  using cost::Quadratic;
  const cost::KindCost block{
      {Quadratic::from_ns(a, 1, 7), Quadratic::from_ns(2 * a, 2, 14), Quadratic::from_ns(0, 3, 0)}, 100, 100};
  options.kinds_by_tp[1] = {{}, block, {}};
  options.intra = {.latency_ns = 5, .bytes_per_s = 64'000'000'000};
  options.inter = {.latency_ns = 50, .bytes_per_s = 64'000'000'000};
  options.memory.device_bytes = 10'000'000;
  options.topology = 2;
  return cost::CostModel(options);
}

strategy::PipelineMicroBatch micro_batch_on(int lane, std::vector<int64_t> lengths) {
  strategy::PipelineMicroBatch micro_batch{.first_lane = lane, .sequences = {}};
  for (const int64_t length : lengths)
    micro_batch.sequences.push_back({static_cast<int32_t>(micro_batch.sequences.size()), length});
  return micro_batch;
}

// One sequence over several lanes.
strategy::PipelineMicroBatch ring_over(int first_lane, int lanes, int64_t length) {
  return {.first_lane = first_lane, .lanes = lanes, .sequences = {{9, length}}};
}

PipelinePlan plan_of(strategy::Pipeline pipeline, std::vector<strategy::PipelineMicroBatch> micro_batches) {
  PipelinePlan plan;
  plan.pipeline = std::move(pipeline);
  plan.micro_batches = std::move(micro_batches);
  return plan;
}

TEST(PipelineLoad, RowsOfATableEqualUnits) {
  const strategy::Pipeline pipeline{.scheme = {.pp = 3}, .ranks = {0, 1, 2}};
  const cost::CostModel cost = plain_cost(1);
  const MicroBatchTimes times(pipeline, cost);
  MicroBatchTable table(3);
  table.resize(2);
  for (const int64_t length : {1, 30, 333}) {
    cost::Work work = cost::Work::of_lane(length, length, 1);
    work += cost::Work::of_lane(20, 20, 1);
    const TimedMicroBatch micro_batch = times.of(std::span(&work, 1), 0);
    times.write(work, table, 1);
    EXPECT_EQ(table.head(1).tokens, micro_batch.tokens);
    for (size_t stage = 0; stage < 3; ++stage) {
      const MicroBatchTable::Cells& cells = table.row(1)[stage];
      EXPECT_EQ(cells.forward_ns, micro_batch.forward_ns[stage]);
      EXPECT_EQ(cells.backward_input_ns, micro_batch.backward_input_ns[stage]);
      EXPECT_EQ(cells.backward_weight_ns, micro_batch.backward_weight_ns[stage]);
      if (stage == 2) continue;
      EXPECT_EQ(cells.transfer_ns, micro_batch.transfer_ns[stage]);
    }
  }
}

TEST(PipelineLoad, CellsOfEveryStageAndTransfersByNode) {
  const PipelinePlan plan = plan_of({.scheme = {.pp = 3}, .ranks = {0, 1, 2}},
                                    {micro_batch_on(0, {10, 20}), micro_batch_on(0, {30})});
  const PipelineLoad load = pipeline_load(plan, plain_cost(1), 3);
  EXPECT_EQ(load.stages, 3);
  EXPECT_EQ(load.lanes, 1);
  EXPECT_EQ(load.credit_tokens, cost::MemoryCost(plain_cost(1), {.pp = 3}).credit_tokens(3));
  ASSERT_EQ(load.micro_batches.size(), 2u);
  // Stages of two, one and one layers.
  EXPECT_EQ(load.micro_batches[0].tokens, 30);
  EXPECT_EQ(load.micro_batches[0].forward_ns, (std::vector<int64_t>{2 * 537, 537, 537}));
  EXPECT_EQ(load.micro_batches[0].backward_input_ns, (std::vector<int64_t>{2 * 1074, 1074, 1074}));
  EXPECT_EQ(load.micro_batches[0].backward_weight_ns, (std::vector<int64_t>{180, 90, 90}));
  EXPECT_EQ(load.micro_batches[1].forward_ns[1], 937);
  // Ranks 0 and 1 share a node; 30 rows of 64 bytes.
  EXPECT_EQ(load.micro_batches[0].transfer_ns, (std::vector<int64_t>{35, 80}));
}

TEST(PipelineLoad, LanesOfAUnitShareItsAttention) {
  const PipelinePlan plan =
      plan_of({.scheme = {.cp = 3}, .ranks = {0, 1, 2}}, {micro_batch_on(0, {5}), ring_over(0, 2, 40)});
  const std::vector<TimedMicroBatch> micro_batches = timed_micro_batches(plan, plain_cost(1));
  ASSERT_EQ(micro_batches.size(), 2u);
  EXPECT_EQ(micro_batches[0].tokens, 5);
  EXPECT_EQ(micro_batches[1].first_lane, 0);
  EXPECT_EQ(micro_batches[1].lanes, 2);
  EXPECT_EQ(micro_batches[1].tokens, 20);
  EXPECT_EQ(micro_batches[1].forward_ns, (std::vector<int64_t>{4 * (40 * 40 / 2 + 20 + 7)}));
}

TEST(PipelineLoad, SequencesOfALaneBesideARingAreItsAlone) {
  PipelinePlan plan = plan_of({.scheme = {.cp = 2}, .ranks = {0, 1}}, {ring_over(0, 2, 40)});
  plan.micro_batches[0].own = {{}, {{3, 10}}};
  const TimedMicroBatch micro_batch = timed_micro_batches(plan, plain_cost(1)).at(0);
  EXPECT_EQ(micro_batch.tokens, 30);
  EXPECT_EQ(micro_batch.forward_ns.at(0), 4 * (40 * 40 / 2 + 10 * 10 + 30 + 7));
}

// Keys and values of 2 heads of 8 in 4 bytes: 128 bytes a token, 2 ns; nodes of two ranks.
TEST(PipelineLoad, RingsAddWhatAttentionDoesNotHide) {
  const auto forward_ns = [](double a, int first_lane, int lanes) {
    const PipelinePlan plan =
        plan_of({.scheme = {.cp = 4}, .ranks = {0, 1, 2, 3}}, {ring_over(first_lane, lanes, 40)});
    return timed_micro_batches(plan, plain_cost(a)).at(0).forward_ns.at(0);
  };
  EXPECT_EQ(forward_ns(0, 0, 2), 4 * (20 + 7) + 4 * (5 + 40));
  EXPECT_EQ(forward_ns(0, 1, 2), 4 * (20 + 7) + 4 * (50 + 40));
  // On two levels: a block between the nodes, then one step inside.
  EXPECT_EQ(forward_ns(0, 0, 4), 4 * (10 + 7) + 4 * ((50 + 20) + (5 + 20)));
  // Attention of 800 a lane and layer, half of it beside the only step.
  EXPECT_EQ(forward_ns(0.0625, 0, 2), 4 * (50 + 20 + 7) + 4 * (45 - 25));
  EXPECT_EQ(forward_ns(1, 0, 2), 4 * (800 + 20 + 7));
}

}  // namespace
}  // namespace sluice::schedule
