#include "plan/dispatch.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/rng.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

constexpr int kWorld = 4;

struct Schemes {
  explicit Schemes(const cost::CostModel& cost)
      : single({}, cost, kWorld), tensor({.tp = 2}, cost, kWorld), staged({.pp = 2}, cost, kWorld) {}
  SchemeCost single;
  SchemeCost tensor;
  SchemeCost staged;
};

// The best of all assignments.
int64_t brute_force(const std::vector<int64_t>& lengths, const std::vector<const SchemeCost*>& pipelines) {
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
  const cost::CostModel cost = test_cost();
  const Schemes schemes(cost);
  const std::vector<const SchemeCost*> pipelines = {&schemes.staged, &schemes.single};
  const std::vector<int64_t> lengths = {100, 300, 200};
  const std::vector<int> all_first = {0, 0, 0};
  EXPECT_EQ(estimated_ns(lengths, pipelines, all_first), schemes.staged.sequence_ns(100) +
                                                             2 * schemes.staged.sequence_ns(300) +
                                                             schemes.staged.sequence_ns(200));
}

TEST(Dispatch, StaysCloseToBruteForce) {
  const cost::CostModel cost = test_cost();
  const Schemes schemes(cost);
  const std::vector<const SchemeCost*> pipelines = {&schemes.tensor, &schemes.single, &schemes.single};
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
  const cost::CostModel cost = test_cost();
  const Schemes schemes(cost);
  ASSERT_GT(schemes.tensor.max_len_tokens(), schemes.single.max_len_tokens());
  const std::vector<const SchemeCost*> pipelines = {&schemes.single, &schemes.tensor};
  const std::vector<int64_t> lengths = {10, schemes.single.max_len_tokens() + 1, 20};
  const std::optional<Dispatch> result = dispatch(lengths, pipelines, {});
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->pipeline_of[1], 1);
}

TEST(Dispatch, SequenceThatFitsNowhereIsInfeasible) {
  const cost::CostModel cost = test_cost();
  const Schemes schemes(cost);
  const std::vector<const SchemeCost*> pipelines = {&schemes.single};
  const std::vector<int64_t> lengths = {schemes.single.max_len_tokens() + 1};
  EXPECT_FALSE(dispatch(lengths, pipelines, {}).has_value());
}

TEST(Dispatch, TiesGoToTheFirstOrToTheLeastLoaded) {
  const cost::CostModel cost = test_cost();
  const Schemes schemes(cost);
  const std::vector<const SchemeCost*> pipelines = {&schemes.single, &schemes.single, &schemes.single};
  // The long one goes first and decides the maximum; the short ones never raise it.
  const std::vector<int64_t> lengths = {2000, 100, 100};
  const std::optional<Dispatch> first =
      dispatch(lengths, pipelines, {.trials = 1, .tie_rule = TieRule::kFirst});
  EXPECT_EQ(first->pipeline_of, (std::vector<int>{0, 1, 1}));
  const std::optional<Dispatch> own =
      dispatch(lengths, pipelines, {.trials = 1, .tie_rule = TieRule::kOwnLoad});
  EXPECT_EQ(own->pipeline_of, (std::vector<int>{0, 1, 2}));
}

TEST(Dispatch, SameSeedSameResultAndMoreTrialsNeverWorse) {
  const cost::CostModel cost = test_cost();
  const Schemes schemes(cost);
  const std::vector<const SchemeCost*> pipelines = {&schemes.staged, &schemes.single, &schemes.single};
  base::Rng rng(9);
  std::vector<int64_t> lengths;
  for (int i = 0; i < 40; ++i) lengths.push_back(rng.between(10, 1500));
  const DispatchOptions options{.trials = 50, .seed = 4, .stream = 7};
  EXPECT_EQ(dispatch(lengths, pipelines, options)->pipeline_of,
            dispatch(lengths, pipelines, options)->pipeline_of);
  EXPECT_LE(dispatch(lengths, pipelines, options)->estimated_ns,
            dispatch(lengths, pipelines, {.trials = 1, .seed = 4})->estimated_ns);
}

TEST(Dispatch, NoSequencesTakeNoTime) {
  const cost::CostModel cost = test_cost();
  const Schemes schemes(cost);
  const std::vector<const SchemeCost*> pipelines = {&schemes.single};
  const std::optional<Dispatch> result = dispatch({}, pipelines, {});
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->estimated_ns, 0);
}

}  // namespace
}  // namespace sluice::plan
