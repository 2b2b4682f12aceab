#include "plan/pack.h"

#include <gtest/gtest.h>

#include "plan/test_models.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::plan {
namespace {

TEST(Pack, OneStageTakesTheFewestMicroBatches) {
  const cost::CostModel cost = test_cost();
  const SchemeCost scheme({}, cost, 4);
  const int64_t half = scheme.max_len_tokens() / 2;
  const std::vector<int64_t> lengths = {half, half, half, half};
  const std::vector<int> members = {0, 1, 2, 3};
  const PackedPipeline packed = *pack({.scheme = {}, .ranks = {0}}, scheme, lengths, members);
  EXPECT_EQ(packed.plan.micro_batches.size(), 2u);
  EXPECT_EQ(packed.makespan_ns,
            schedule::schedule_pipeline(schedule::pipeline_load(packed.plan, cost, 4)).makespan_ns);
}

TEST(Pack, StagesGetMoreMicroBatchesThanFitDemands) {
  const cost::CostModel cost = test_cost();
  const SchemeCost scheme({.pp = 2}, cost, 4);
  const std::vector<int64_t> lengths(16, 200);
  std::vector<int> members;
  for (int i = 0; i < 16; ++i) members.push_back(i);
  const PackedPipeline packed = *pack({.scheme = {.pp = 2}, .ranks = {0, 1}}, scheme, lengths, members);
  EXPECT_GT(packed.plan.micro_batches.size(), 1u);
}

TEST(Pack, PipelineWithoutSequencesIsEmpty) {
  const cost::CostModel cost = test_cost();
  const SchemeCost scheme({}, cost, 4);
  const PackedPipeline packed = *pack({.scheme = {}, .ranks = {0}}, scheme, {}, {});
  EXPECT_EQ(packed.makespan_ns, 0);
  EXPECT_TRUE(packed.plan.micro_batches.empty());
}

}  // namespace
}  // namespace sluice::plan
