#include "plan/longest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/rng.h"
#include "exact/exact.h"
#include "plan/test_models.h"

namespace sluice::exact {
namespace {

using namespace plan;

constexpr int kWorld = 8;

struct Instance {
  Instance(const std::string& text, const cost::CostModel& cost, uint64_t seed)
      : strategy(strategy::parse_strategy(text, kWorld)) {
    int64_t holds = 0;
    schemes = SchemeCosts({&strategy, 1}, cost, kWorld);
    for (const strategy::Pipeline& pipeline : strategy.pipelines) {
      const SchemeCost& of = schemes.of(pipeline);
      auto group = std::ranges::find(groups, &of, &SchemeGroup::scheme);
      if (group == groups.end()) group = groups.insert(groups.end(), {&of, 0});
      ++group->pipelines;
      holds = std::max(holds, of.max_len_tokens());
    }
    base::Rng rng(seed, 71);
    for (int64_t i = rng.between(1, 5); i > 0; --i) {
      lengths.push_back(rng.between(1, rng.below(2) == 0 ? holds : holds / 3));
    }
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
  }

  // The first sequence that each group holds.
  std::vector<size_t> first() const {
    std::vector<size_t> result;
    for (const SchemeGroup& group : groups) {
      const auto held = std::ranges::count_if(
          lengths, [&](int64_t length) { return length > group.scheme->max_len_tokens(); });
      result.push_back(static_cast<size_t>(held));
    }
    return result;
  }

  strategy::Strategy strategy;
  SchemeCosts schemes;
  std::vector<SchemeGroup> groups;
  std::vector<int64_t> lengths;
};

TEST(Longest, ExcludeNothingThatThereIs) {
  const std::vector<cost::CostModel> costs = {test_cost(), test_cost(45'000'000)};
  const std::vector<std::string> texts = {"<1,4,1>", "2x<1,2,1>", "<1,4,1> + <1,2,1>", "<1,3,1> + 2x<1,1,1>",
                                          "<2,2,1> + <1,2,1>"};
  int close = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const cost::CostModel& cost = costs[seed % costs.size()];
    const Instance of(texts[seed % texts.size()], cost, seed);
    const int64_t best_ns = exact_plan(of.strategy, of.schemes, cost, of.lengths)->makespan_ns;
    LongestSequences longest(of.lengths, of.groups, FloorTable(of.lengths, of.groups));
    const std::vector<size_t> first = of.first();
    for (size_t count = 1; count <= of.lengths.size(); ++count) {
      ASSERT_FALSE(longest.exceed(best_ns, count, first)) << "seed " << seed << " count " << count;
    }
    close += longest.exceed(best_ns - best_ns / 5, of.lengths.size(), first) ? 1 : 0;
  }
  EXPECT_GE(close, 80);
}

TEST(Longest, OneMoreThanPipelinesThatHoldThemMustMeet) {
  const cost::CostModel cost = test_cost();
  const SchemeCost scheme(strategy::parse_scheme("<1,2,1>"), cost, kWorld);
  const std::vector<int64_t> lengths(4, 1000);
  const std::vector<SchemeGroup> groups = {{&scheme, 3}};
  LongestSequences longest(lengths, groups, FloorTable(lengths, groups));
  const std::vector<size_t> first = {0};
  const int64_t path_ns = scheme.floors().path_ns(1000);
  ASSERT_GT(scheme.floors().turning_ns(1000), scheme.floors().passing_ns(1000));
  EXPECT_FALSE(longest.exceed(path_ns, 3, first));
  EXPECT_TRUE(longest.exceed(path_ns, 4, first));
  EXPECT_TRUE(longest.exceed(path_ns + scheme.floors().turning_ns(1000) - 1, 4, first));
}

}  // namespace
}  // namespace sluice::exact
