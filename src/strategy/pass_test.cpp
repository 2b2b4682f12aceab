#include "strategy/pass.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/rng.h"

namespace sluice::strategy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Units of some lanes each, in this order, of one sequence of ten tokens a lane.
PipelinePlan plan_of(int lanes, int share, const std::vector<base::Interval>& units) {
  PipelinePlan plan;
  plan.pipeline.scheme = {.cp = lanes, .share = share};
  for (size_t u = 0; u < units.size(); ++u) {
    plan.units.push_back({.first_lane = static_cast<int>(units[u].begin),
                          .lanes = static_cast<int>(units[u].size()),
                          .sequences = {{static_cast<int32_t>(u), 10 * units[u].size()}},
                          .ring = static_cast<int>(u)});
  }
  plan.units = in_injection_order(std::move(plan.units), lanes);
  return plan;
}

std::vector<int> assigned(const PipelinePlan& plan) {
  std::vector<int> numbers;
  for (const Unit& unit : plan.units) numbers.push_back(unit.pass.value_or(-1));
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
  EXPECT_EQ(unit_on(plan, own[1], 2), 2);
  EXPECT_EQ(unit_on(plan, own[1], 3), -1);
  EXPECT_EQ(tokens_on(plan, own[1], 3), 0);
  EXPECT_EQ(tokens_of(plan, own[0]), 10);
}

// One group has one pass before it, the other three.
TEST(Pass, AUnitOverTwoGroupsTiesThem) {
  PipelinePlan plan = plan_of(4, 2, {{0, 1}, {2, 3}, {2, 3}, {2, 3}, {1, 3}, {3, 4}});
  assign_passes(plan);
  const std::vector<Pass> own = passes(plan);
  ASSERT_EQ(own.size(), 5u);
  EXPECT_THAT(own[1].units, testing::SizeIs(2));  // the first on lanes 2 and 3
  EXPECT_EQ(own.back().first_lane, 0);
  EXPECT_EQ(own.back().lanes, 4);
}

TEST(Pass, UnitsUnderAnotherPolicyHaveTheirOwn) {
  PipelinePlan plan = plan_of(2, 2, {{0, 1}, {1, 2}});
  plan.units[1].memory.recompute_permille = 1000;
  assign_passes(plan);
  EXPECT_THAT(assigned(plan), ElementsAre(0, 1));
  EXPECT_TRUE(passes(plan)[1].memory.recomputes());
}

TEST(Pass, EachFaultIsNamed) {
  const auto fault = [](std::vector<std::optional<int>> numbers) {
    PipelinePlan plan = plan_of(4, 2, {{0, 1}, {2, 3}, {0, 1}});
    for (size_t u = 0; u < numbers.size(); ++u) plan.units[u].pass = numbers[u];
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

// Random plans: what is assigned is accepted, and on every lane passes stand in the order of its units.
TEST(Pass, WhatIsAssignedIsAccepted) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    base::Rng rng(seed, 5);
    const int share = static_cast<int>(rng.between(2, 4));
    const int lanes = share * static_cast<int>(rng.between(1, 3));
    std::vector<base::Interval> units;
    for (int64_t u = rng.between(1, 20); u > 0; --u) {
      const int64_t first = rng.between(0, lanes - 1);
      units.push_back({first, rng.below(2) == 0 ? first + 1 : rng.between(first + 1, lanes)});
    }
    PipelinePlan plan = plan_of(lanes, share, units);
    assign_passes(plan);
    size_t counted = 0;
    for (const Pass& pass : passes(plan)) {
      counted += pass.units.size();
      EXPECT_EQ(pass.first_lane % share, 0);
      EXPECT_EQ(pass.lanes % share, 0);
      for (const int unit : pass.units) {
        const Unit& of = plan.units[static_cast<size_t>(unit)];
        EXPECT_TRUE(pass.covers(of.first_lane) && pass.covers(of.end_lane() - 1)) << "seed " << seed;
      }
    }
    EXPECT_EQ(counted, plan.units.size());
  }
}

}  // namespace
}  // namespace sluice::strategy
