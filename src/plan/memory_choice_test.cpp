#include "plan/memory_choice.h"

#include <gtest/gtest.h>

#include "cost/memory_cost.h"
#include "plan/scheme_cost.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

using strategy::Scheme;

constexpr Savings kAll{.recompute = true, .offload = true};

cost::CostModel with_host(int64_t bytes_per_s, int64_t layers = 8, int64_t host_bytes = 0) {
  cost::CostModel::Options options = test_cost(128'000'000, layers).options();
  options.host = {0, bytes_per_s};
  options.memory.host_bytes = host_bytes;
  return cost::CostModel(std::move(options));
}

int64_t holds(const cost::CostModel& cost, const Scheme& scheme = {}) {
  return cost::MemoryCost(cost, scheme).max_len_tokens(1);
}

TEST(MemoryChoice, KeepsWhatFits) {
  const cost::CostModel cost = with_host(1'000'000'000);
  const std::vector<Scheme> schemes{{}};
  const auto choice = choose_memory(cost, schemes, 1, holds(cost), kAll);
  ASSERT_TRUE(choice);
  EXPECT_TRUE(choice->policy.keeps_all());
  EXPECT_EQ(choice->estimated_ns, SchemeCost({}, cost, 1).on(1).path_ns(holds(cost)));
}

TEST(MemoryChoice, OffloadsOverAFastLinkAndRecomputesOverASlowOne) {
  const std::vector<Scheme> schemes{{}};
  const cost::CostModel fast = with_host(int64_t{1} << 40), slow = with_host(1'000'000);
  const int64_t length = holds(fast) + holds(fast) / 10;
  const auto offloaded = choose_memory(fast, schemes, 1, length, kAll);
  ASSERT_TRUE(offloaded);
  EXPECT_FALSE(offloaded->policy.recomputes());
  EXPECT_GT(offloaded->policy.offload_permille, 0);
  const auto recomputed = choose_memory(slow, schemes, 1, length, kAll);
  ASSERT_TRUE(recomputed);
  EXPECT_EQ(recomputed->policy.offload_permille, 0);
  EXPECT_TRUE(recomputed->policy.recomputes_some()) << "no more layers than it takes";
}

TEST(MemoryChoice, CombinesBothWhereNeitherIsEnough) {
  const cost::CostModel cost = with_host(100'000'000);
  const std::vector<Scheme> schemes{{}};
  const int64_t either = std::max(longest_held(cost, schemes, 1, {.recompute = true}),
                                  longest_held(cost, schemes, 1, {.offload = true}));
  const int64_t both = longest_held(cost, schemes, 1, kAll);
  ASSERT_GT(both, either);
  for (const int64_t length : {either + 1, both}) {
    EXPECT_FALSE(choose_memory(cost, schemes, 1, length, {.recompute = true}));
    EXPECT_FALSE(choose_memory(cost, schemes, 1, length, {.offload = true}));
    const auto choice = choose_memory(cost, schemes, 1, length, kAll);
    ASSERT_TRUE(choice) << length;
    EXPECT_TRUE(choice->policy.recomputes());
    EXPECT_GT(choice->policy.offload_permille, 0);
    EXPECT_GE(holds(cost.under(choice->policy)), length);
  }
  EXPECT_FALSE(choose_memory(cost, schemes, 1, both + 1, kAll));
}

TEST(MemoryChoice, StaysWithinTheHostsMemory) {
  const std::vector<Scheme> schemes{{}};
  const cost::CostModel roomy = with_host(int64_t{1} << 40);
  const int64_t length = holds(roomy) + holds(roomy) / 5;
  const cost::CostModel small = with_host(int64_t{1} << 40, 8, 1000);
  const auto choice = choose_memory(small, schemes, 1, length, kAll);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->policy.offload_permille, 0);
  EXPECT_FALSE(choose_memory(small, schemes, 1, length, {.offload = true}));
}

TEST(MemoryChoice, SavesNoLessThanTheGivenPolicy) {
  const std::vector<Scheme> schemes{{}};
  const cost::CostModel given = with_host(int64_t{1} << 40).under({.offload_permille = 333});
  const int64_t length = holds(given) + 100;
  const auto choice = choose_memory(given, schemes, 1, length, {.recompute = true});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->policy.offload_permille, 333);
  EXPECT_TRUE(choice->policy.recomputes());
  EXPECT_FALSE(choose_memory(given, schemes, 1, length, {}));
}

TEST(MemoryChoice, TakesTheSchemeThatEndsFirst) {
  const cost::CostModel cost = with_host(int64_t{1} << 36);
  const std::vector<Scheme> schemes{{}, {.cp = 2}, {.cp = 4}, {.cp = 4, .fsdp = 4}};
  const int64_t length = longest_held(cost, schemes, 4, {});
  const auto choice = choose_memory(cost, schemes, 4, length, kAll);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->scheme.cp, 4);
  EXPECT_FALSE(choose_memory(cost, {}, 4, length, kAll));
}

TEST(RoomySchemes, ShareWithinNodesAndAsWidelyAsLanesAre) {
  const auto schemes = roomy_schemes(test_cost(), 8, 8, 8);
  EXPECT_NE(std::ranges::find(schemes, Scheme{.cp = 8, .fsdp = 8}), schemes.end());
  EXPECT_NE(std::ranges::find(schemes, Scheme{.pp = 2, .cp = 4}), schemes.end());
  for (const Scheme& scheme : roomy_schemes(test_cost(), 8, 8, 1)) EXPECT_EQ(scheme.fsdp, 1);
  for (const Scheme& scheme : roomy_schemes(test_cost(), 8, 1, 8)) EXPECT_EQ(scheme.cp, 1);
}

TEST(SchemesOf, AreThoseOfAllPipelinesOnce) {
  const std::vector<strategy::Strategy> strategies{strategy::parse_strategy("2x<1,1,2> + 4x<1,1,1>", 8),
                                                   strategy::parse_strategy("4x<1,1,2>", 8)};
  EXPECT_EQ(schemes_of(strategies), (std::vector<Scheme>{{}, {.cp = 2}}));
}

}  // namespace
}  // namespace sluice::plan
