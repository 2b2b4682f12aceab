#include "strategy/pass.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/rng.h"

namespace sluice::strategy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Micro-batches on these intervals of lanes, in this order, each of one sequence with ten tokens a lane.
PipelinePlan plan_of(int lanes, int share, const std::vector<base::Interval>& micro_batches) {
  PipelinePlan plan;
  plan.pipeline.scheme = {.cp = lanes, .fsdp = share};
  for (size_t u = 0; u < micro_batches.size(); ++u) {
    plan.micro_batches.push_back({.first_lane = static_cast<int>(micro_batches[u].begin),
                                  .lanes = static_cast<int>(micro_batches[u].size()),
                                  .sequences = {{static_cast<int32_t>(u), 10 * micro_batches[u].size()}},
                                  .number = static_cast<int>(u)});
  }
  plan.micro_batches = in_injection_order(std::move(plan.micro_batches), lanes);
  return plan;
}

std::vector<int> assigned(const PipelinePlan& plan) {
  std::vector<int> numbers;
  for (const PipelineMicroBatch& micro_batch : plan.micro_batches)
    numbers.push_back(micro_batch.pass.value_or(-1));
  return numbers;
}

TEST(Pass, WithoutSharingEveryUnitIsOne) {
  PipelinePlan plan = plan_of(2, 1, {{0, 1}, {1, 2}, {0, 2}});
  assign_passes(plan);
  EXPECT_THAT(assigned(plan), ElementsAre(-1, -1, -1));
  const std::vector<Pass> own = passes(plan);
  ASSERT_EQ(own.size(), 3u);
  EXPECT_EQ(own[1], (Pass{1, 1, {1}, {}}));
  EXPECT_EQ(own[2], (Pass{0, 2, {2}, {}}));
}

TEST(Pass, UnitsOfAShareGroupRunTogetherAndALaneWithoutOneTakesPart) {
  PipelinePlan plan = plan_of(4, 2, {{0, 1}, {1, 2}, {0, 1}, {2, 3}});
  assign_passes(plan);
  const std::vector<Pass> own = passes(plan);
  ASSERT_EQ(own.size(), 3u);
  EXPECT_EQ(own[0], (Pass{0, 2, {0, 1}, {}}));
  EXPECT_EQ(own[1], (Pass{2, 2, {2}, {}}));  // lane 3 has nothing
  EXPECT_EQ(own[2], (Pass{0, 2, {3}, {}}));
  EXPECT_EQ(micro_batch_on(plan, own[1], 2), 2);
  EXPECT_EQ(micro_batch_on(plan, own[1], 3), -1);
  EXPECT_EQ(tokens_on(plan, own[1], 3), 0);
  EXPECT_EQ(tokens_of(plan, own[0]), 10);
}

// The first share group has one pass before the shared one, the second group three.
TEST(Pass, AUnitOverTwoGroupsTiesThem) {
  PipelinePlan plan = plan_of(4, 2, {{0, 1}, {2, 3}, {2, 3}, {2, 3}, {1, 3}, {3, 4}});
  assign_passes(plan);
  const std::vector<Pass> own = passes(plan);
  ASSERT_EQ(own.size(), 5u);
  EXPECT_THAT(own[1].micro_batches, testing::SizeIs(2));  // the first on lanes 2 and 3
  EXPECT_EQ(own.back().first_lane, 0);
  EXPECT_EQ(own.back().lanes, 4);
}

TEST(Pass, UnitsUnderAnotherPolicyHaveTheirOwn) {
  PipelinePlan plan = plan_of(2, 2, {{0, 1}, {1, 2}});
  plan.micro_batches[1].memory.recompute_permille = 1000;
  assign_passes(plan);
  EXPECT_THAT(assigned(plan), ElementsAre(0, 1));
  EXPECT_TRUE(passes(plan)[1].memory.recomputes());
}

TEST(Pass, EachFaultIsNamed) {
  const auto fault = [](std::vector<std::optional<int>> numbers) {
    PipelinePlan plan = plan_of(4, 2, {{0, 1}, {2, 3}, {0, 1}});
    for (size_t u = 0; u < numbers.size(); ++u) plan.micro_batches[u].pass = numbers[u];
    try {
      passes(plan, "pipeline 0");
    } catch (const base::InputError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(fault({0, 1, 2}), "accepted");
  EXPECT_EQ(fault({0, 2, 1}), "accepted");
  EXPECT_THAT(fault({0, {}, 1}), HasSubstr("pipeline 0: a micro-batch of lane 2 is in no pass"));
  EXPECT_THAT(fault({0, 3, 1}), HasSubstr("is in pass 3: where lanes share parameters"));
  EXPECT_THAT(fault({0, 0, 1}), HasSubstr("pass 0: nothing ties lane 2 to those before it"));
  EXPECT_THAT(fault({1, 0, 1}), HasSubstr("pass 1: lane 0 has two micro-batches of it"));
  EXPECT_THAT(fault({2, 0, 1}), HasSubstr("pass 1: lane 0 runs it behind pass 2"));
  EXPECT_THAT(fault({0, 2, 2}), HasSubstr("pass 1: no micro-batch is in it"));
}

// Random plans: assigned passes are accepted, and on every lane passes stand in the order of its
// micro-batches.
TEST(Pass, WhatIsAssignedIsAccepted) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    base::Rng rng(seed, 5);
    const int share = static_cast<int>(rng.between(2, 4));
    const int lanes = share * static_cast<int>(rng.between(1, 3));
    std::vector<base::Interval> micro_batches;
    for (int64_t u = rng.between(1, 20); u > 0; --u) {
      const int64_t first = rng.between(0, lanes - 1);
      micro_batches.push_back({first, rng.below(2) == 0 ? first + 1 : rng.between(first + 1, lanes)});
    }
    PipelinePlan plan = plan_of(lanes, share, micro_batches);
    assign_passes(plan);
    size_t counted = 0;
    for (const Pass& pass : passes(plan)) {
      counted += pass.micro_batches.size();
      EXPECT_EQ(pass.first_lane % share, 0);
      EXPECT_EQ(pass.lanes % share, 0);
      for (const int micro_batch : pass.micro_batches) {
        const PipelineMicroBatch& of = plan.micro_batches[static_cast<size_t>(micro_batch)];
        EXPECT_TRUE(pass.covers(of.first_lane) && pass.covers(of.end_lane() - 1)) << "seed " << seed;
      }
    }
    EXPECT_EQ(counted, plan.micro_batches.size());
  }
}

}  // namespace
}  // namespace sluice::strategy
