#include "published/dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/rng.h"
#include "plan/test_models.h"

namespace sluice::published {
namespace {

constexpr int kRanks = 4;

struct Schemes {
  explicit Schemes(const cost::CostModel& cost)
      : single({}, cost, kRanks), tensor({.tp = 2}, cost, kRanks), staged({.pp = 2}, cost, kRanks) {}
  plan::SchemeCost single;
  plan::SchemeCost tensor;
  plan::SchemeCost staged;
};

// The best of all assignments.
int64_t brute_force(const std::vector<int64_t>& lengths,
                    const std::vector<const plan::SchemeCost*>& pipelines) {
  std::vector<int> choice(lengths.size(), 0);
  int64_t best = std::numeric_limits<int64_t>::max();
  while (true) {
    bool fits = true;
    for (size_t s = 0; s < lengths.size(); ++s) {
      fits = fits && lengths[s] <= pipelines[static_cast<size_t>(choice[s])]->max_len_tokens();
    }
    if (fits) best = std::min(best, estimated_ns(lengths, pipelines, choice));
    size_t s = 0;
    while (s < choice.size() && ++choice[s] == static_cast<int>(pipelines.size())) choice[s++] = 0;
    if (s == choice.size()) return best;
  }
}

TEST(Dispatch, EstimateIsEquationTwo) {
  const cost::CostModel cost = plan::test_cost();
  const Schemes schemes(cost);
  const std::vector<const plan::SchemeCost*> pipelines = {&schemes.staged, &schemes.single};
  const std::vector<int64_t> lengths = {100, 300, 200};
  const std::vector<int> all_first = {0, 0, 0};
  EXPECT_EQ(estimated_ns(lengths, pipelines, all_first), printed_ns(schemes.staged, 100) +
                                                             2 * printed_ns(schemes.staged, 300) +
                                                             printed_ns(schemes.staged, 200));
}

TEST(Dispatch, StaysCloseToBruteForce) {
  const cost::CostModel cost = plan::test_cost();
  const Schemes schemes(cost);
  const std::vector<const plan::SchemeCost*> pipelines = {&schemes.tensor, &schemes.single, &schemes.single};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    base::Rng rng(seed, 2);
    std::vector<int64_t> lengths;
    for (int i = 0; i < 7; ++i) lengths.push_back(rng.between(10, i == 0 ? 2000 : 600));
    const std::optional<Dispatch> result = dispatch(lengths, pipelines, {.seed = seed});
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->estimated_ns, estimated_ns(lengths, pipelines, result->pipeline_of));
    const int64_t best = brute_force(lengths, pipelines);
    EXPECT_GE(result->estimated_ns, best);
    EXPECT_LE(result->estimated_ns * 100, best * 110) << "seed " << seed;
  }
}

TEST(Dispatch, SequencesGoOnlyWhereTheyFit) {
  const cost::CostModel cost = plan::test_cost();
  const Schemes schemes(cost);
  ASSERT_GT(schemes.tensor.max_len_tokens(), schemes.single.max_len_tokens());
  const std::vector<const plan::SchemeCost*> pipelines = {&schemes.single, &schemes.tensor};
  const std::vector<int64_t> lengths = {10, schemes.single.max_len_tokens() + 1, 20};
  const std::optional<Dispatch> result = dispatch(lengths, pipelines, {});
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->pipeline_of[1], 1);
}

TEST(Dispatch, SequenceThatFitsNowhereIsInfeasible) {
  const cost::CostModel cost = plan::test_cost();
  const Schemes schemes(cost);
  const std::vector<const plan::SchemeCost*> pipelines = {&schemes.single};
  const std::vector<int64_t> lengths = {schemes.single.max_len_tokens() + 1};
  EXPECT_FALSE(dispatch(lengths, pipelines, {}).has_value());
}

// Algorithm 1 line by line, with its C, E and m; pipelines in descending order of MaxLen.
Dispatch literal(const std::vector<int64_t>& lengths, const std::vector<const plan::SchemeCost*>& pipelines,
                 const DispatchOptions& options) {
  const size_t sequences = lengths.size();
  const size_t count = pipelines.size();
  Dispatch best{.estimated_ns = std::numeric_limits<int64_t>::max()};
  std::vector<int> order(sequences);
  for (size_t i = 0; i < sequences; ++i) order[i] = static_cast<int>(i);
  base::Rng rng(options.seed, options.stream);
  for (int trial = 0; trial < options.trials; ++trial) {
    rng.shuffle(order);
    std::vector<int64_t> c(count, 0), e(count, 0);
    std::vector<std::vector<int>> m(sequences, std::vector<int>(count, 0));
    for (const int index : order) {
      const auto i = static_cast<size_t>(index);
      int64_t least_ns = std::numeric_limits<int64_t>::max(), own_ns = 0, c_best = 0, e_best = 0;
      size_t chosen = count;
      for (size_t j = 0; j < count && lengths[i] <= pipelines[j]->max_len_tokens(); ++j) {
        int64_t longest = lengths[i];
        for (size_t k = 0; k < sequences; ++k) longest = std::max(longest, m[k][j] * lengths[k]);
        const int64_t c_next = c[j] + printed_ns(*pipelines[j], lengths[i]);
        const int64_t e_next = printed_ns(*pipelines[j], longest) * (pipelines[j]->scheme().pp - 1);
        int64_t most_ns = c_next + e_next;
        for (size_t k = 0; k < count; ++k) {
          if (k != j) most_ns = std::max(most_ns, c[k] + e[k]);
        }
        const bool lighter =
            options.tie_rule == TieRule::kOwnLoad && most_ns == least_ns && c_next + e_next < own_ns;
        if (most_ns > least_ns || (most_ns == least_ns && !lighter)) continue;
        least_ns = most_ns;
        own_ns = c_next + e_next;
        chosen = j;
        c_best = c_next;
        e_best = e_next;
      }
      m[i][chosen] = 1;
      c[chosen] = c_best;
      e[chosen] = e_best;
    }
    int64_t trial_ns = 0;
    for (size_t j = 0; j < count; ++j) trial_ns = std::max(trial_ns, c[j] + e[j]);
    if (trial_ns >= best.estimated_ns) continue;
    best = {.pipeline_of = std::vector<int>(sequences, 0), .estimated_ns = trial_ns};
    for (size_t i = 0; i < sequences; ++i) {
      for (size_t j = 0; j < count; ++j) {
        if (m[i][j] == 1) best.pipeline_of[i] = static_cast<int>(j);
      }
    }
  }
  return best;
}

TEST(Dispatch, EqualsTheAlgorithmLineByLine) {
  const cost::CostModel cost = plan::test_cost();
  const Schemes schemes(cost);
  std::vector<const plan::SchemeCost*> pipelines = {&schemes.tensor, &schemes.single, &schemes.staged,
                                                    &schemes.single, &schemes.staged};
  std::stable_sort(pipelines.begin(), pipelines.end(),
                   [](const plan::SchemeCost* a, const plan::SchemeCost* b) {
                     return a->max_len_tokens() > b->max_len_tokens();
                   });
  for (uint64_t seed = 0; seed < 60; ++seed) {
    base::Rng rng(seed, 5);
    std::vector<int64_t> lengths;
    for (int64_t i = rng.between(0, 25); i > 0; --i) {
      lengths.push_back(rng.between(10, i % 5 == 0 ? pipelines[0]->max_len_tokens() : 600));
    }
    const DispatchOptions options{
        .trials = 10, .seed = seed, .tie_rule = seed % 2 == 0 ? TieRule::kFirst : TieRule::kOwnLoad};
    const Dispatch expected = literal(lengths, pipelines, options);
    const std::optional<Dispatch> result = dispatch(lengths, pipelines, options);
    EXPECT_EQ(result->pipeline_of, expected.pipeline_of) << "seed " << seed;
    EXPECT_EQ(result->estimated_ns, expected.estimated_ns);
  }
}

TEST(Dispatch, PipelinesAreLookedAtFromTheLargestDown) {
  const cost::CostModel cost = plan::test_cost();
  const Schemes schemes(cost);
  const std::vector<const plan::SchemeCost*> pipelines = {&schemes.single, &schemes.tensor, &schemes.tensor};
  // The longest decides the maximum wherever it is; what never raises it goes to the first of the largest.
  const std::vector<int64_t> lengths = {schemes.tensor.max_len_tokens(), 20, 20};
  const std::optional<Dispatch> result =
      dispatch(lengths, pipelines, {.trials = 20, .tie_rule = TieRule::kFirst});
  EXPECT_EQ(result->estimated_ns, printed_ns(schemes.tensor, lengths[0]));
  EXPECT_EQ(std::count(result->pipeline_of.begin(), result->pipeline_of.end(), 0), 0);
}

TEST(IdealDispatch, EqualsBruteForceAndProvesIt) {
  const cost::CostModel cost = plan::test_cost();
  const Schemes schemes(cost);
  const std::vector<const plan::SchemeCost*> pipelines = {&schemes.tensor, &schemes.single, &schemes.single,
                                                          &schemes.staged};
  for (uint64_t seed = 0; seed < 100; ++seed) {
    base::Rng rng(seed, 6);
    std::vector<int64_t> lengths;
    for (int64_t i = rng.between(1, 7); i > 0; --i) {
      lengths.push_back(rng.between(10, i == 1 ? schemes.tensor.max_len_tokens() : 600));
    }
    const std::optional<IdealDispatch> ideal = ideal_dispatch(lengths, pipelines, {.trials = 1}, 1'000'000);
    ASSERT_TRUE(ideal->proved) << "seed " << seed;
    EXPECT_EQ(ideal->best.estimated_ns, brute_force(lengths, pipelines)) << "seed " << seed;
    EXPECT_EQ(ideal->best.estimated_ns, estimated_ns(lengths, pipelines, ideal->best.pipeline_of));
  }
}

TEST(IdealDispatch, WithoutNodesItIsTheGreedyOneAboveABound) {
  const cost::CostModel cost = plan::test_cost();
  const Schemes schemes(cost);
  const std::vector<const plan::SchemeCost*> pipelines = {&schemes.tensor, &schemes.single, &schemes.single};
  base::Rng rng(3, 7);
  std::vector<int64_t> lengths;
  for (int i = 0; i < 60; ++i) lengths.push_back(rng.between(10, 900));
  const std::optional<IdealDispatch> none = ideal_dispatch(lengths, pipelines, {}, 0);
  EXPECT_FALSE(none->proved);
  EXPECT_EQ(none->best.pipeline_of, dispatch(lengths, pipelines, {})->pipeline_of);
  const std::optional<IdealDispatch> some = ideal_dispatch(lengths, pipelines, {}, 100'000);
  EXPECT_LE(some->best.estimated_ns, none->best.estimated_ns);
  EXPECT_LE(none->lower_ns, some->best.estimated_ns);
  EXPECT_LE(some->best.estimated_ns * 1000, some->lower_ns * 1010);
  EXPECT_FALSE(ideal_dispatch(std::vector<int64_t>{1 << 30}, pipelines, {}, 10).has_value());
}

TEST(Dispatch, SameSeedSameResultAndMoreTrialsNeverWorse) {
  const cost::CostModel cost = plan::test_cost();
  const Schemes schemes(cost);
  const std::vector<const plan::SchemeCost*> pipelines = {&schemes.staged, &schemes.single, &schemes.single};
  base::Rng rng(9);
  std::vector<int64_t> lengths;
  for (int i = 0; i < 40; ++i) lengths.push_back(rng.between(10, 1500));
  const DispatchOptions options{.trials = 50, .seed = 4, .stream = 7};
  EXPECT_EQ(dispatch(lengths, pipelines, options)->pipeline_of,
            dispatch(lengths, pipelines, options)->pipeline_of);
  EXPECT_LE(dispatch(lengths, pipelines, options)->estimated_ns,
            dispatch(lengths, pipelines, {.trials = 1, .seed = 4, .stream = 7})->estimated_ns);
}

TEST(Dispatch, NoSequencesTakeNoTime) {
  const cost::CostModel cost = plan::test_cost();
  const Schemes schemes(cost);
  const std::vector<const plan::SchemeCost*> pipelines = {&schemes.single};
  const std::optional<Dispatch> result = dispatch({}, pipelines, {});
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->estimated_ns, 0);
}

}  // namespace
}  // namespace sluice::published
