#include "report/plan_table.h"

#include <gtest/gtest.h>

namespace sluice::report {
namespace {

strategy::PipelineMicroBatch of_lengths(int first_lane, std::vector<int64_t> lengths) {
  strategy::PipelineMicroBatch micro_batch{.first_lane = first_lane, .sequences = {}};
  for (size_t i = 0; i < lengths.size(); ++i)
    micro_batch.sequences.push_back({static_cast<int>(i), lengths[i]});
  return micro_batch;
}

// A pipeline with two lanes, whose ranks are not neighbours, and one that has nothing to do.
strategy::StepPlan two_pipelines() {
  strategy::StepPlan plan{.step = 7, .sequences = {{0, 0, 9000}, {1, 0, 500}, {2, 0, 300}}};
  strategy::PipelinePlan laned{.pipeline = {{.tp = 2, .cp = 2}, {0, 1, 4, 5}}, .max_len_tokens = 12000};
  laned.micro_batches = {{.lanes = 2, .sequences = {{0, 9000}}, .number = 1}, of_lengths(1, {500, 300})};
  plan.pipelines = {laned, {.pipeline = {{}, {6}}, .max_len_tokens = 2000, .micro_batches = {}}};
  plan.estimated_ns = 1'500'000'000;
  plan.lower_bound_ns = 1'200'000'000;
  plan.candidates = {{"1x<2,1,2> + 1x<1,1,1>", 1'500'000'000}, {"1x<4,1,1>", 1'600'000'000}};
  return plan;
}

TEST(PlanTable, HasARowForEachLane) {
  EXPECT_EQ(plan_table(two_pipelines()),
            R"(step 7: 3 sequences, 9,800 tokens, 9,797 targets
strategy tp2,cp2 + tp1, predicted 1.50 s
  schedule 1.50 s, within 25.0 % of the best: no plan of these candidates takes less than 1.20 s

  pipeline  ranks    max sequence length  lane  tokens  lane parts: tokens (pieces)
  tp2,cp2   0-1,4-5               12,000     0   4,500  4,500 (2) ring of micro-batch 1
                                             1   5,300  4,500 (2) ring of micro-batch 1, 800 (2)
  tp1       6                      2,000     0       0  none

  estimated  candidate; the estimate of one that cannot win may be a bound
     1.50 s  tp2,cp2 + tp1
     1.60 s  tp4)");
}

TEST(PlanTable, CountsWhatIsTooManyToName) {
  strategy::StepPlan plan = two_pipelines();
  plan.candidates.clear();
  plan.pipelines[1].micro_batches.assign(20, of_lengths(0, {100}));
  plan.pipelines[1].micro_batches.push_back(of_lengths(0, {1000, 200}));
  const std::string table = plan_table(plan, 2'000'000'000);
  EXPECT_NE(table.find("predicted 2.00 s"), std::string::npos) << table;
  EXPECT_TRUE(table.ends_with("3,200  21 of 100 to 1,200")) << table;
}

}  // namespace
}  // namespace sluice::report
