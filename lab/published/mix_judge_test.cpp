#include "published/mix_judge.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "plan/test_models.h"

namespace sluice::published {
namespace {

constexpr int kJudgedRanks = 8;

// Every mix on at most so many ranks that holds something.
void enumerate(const std::vector<plan::SchemeCost>& schemes, int ranks, plan::Mix mix,
               std::vector<plan::Mix>& all) {
  if (mix.size() == schemes.size()) {
    if (max_len_tokens(mix, schemes) > 0) all.push_back(mix);
    return;
  }
  const int each = schemes[mix.size()].scheme().ranks();
  mix.push_back(0);
  for (; mix.back() * each <= ranks; ++mix.back()) enumerate(schemes, ranks - mix.back() * each, mix, all);
}

std::vector<const plan::SchemeCost*> pipelines_of(const plan::Mix& mix,
                                                  const std::vector<plan::SchemeCost>& schemes) {
  std::vector<const plan::SchemeCost*> pipelines;
  for (size_t k = 0; k < mix.size(); ++k)
    pipelines.insert(pipelines.end(), static_cast<size_t>(mix[k]), &schemes[k]);
  return pipelines;
}

struct Case {
  cost::CostModel cost = plan::test_cost();
  std::vector<plan::SchemeCost> schemes = plan::usable_schemes(cost, kJudgedRanks, 1);
  std::vector<plan::Mix> mixes;

  Case() { enumerate(schemes, kJudgedRanks, {}, mixes); }
  // Mostly short, now and then as long as the largest scheme holds.
  std::vector<int64_t> lengths(base::Rng& rng, int64_t most) const {
    std::vector<int64_t> lengths;
    for (int64_t i = rng.between(0, most); i > 0; --i)
      lengths.push_back(rng.between(2, rng.below(12) == 0 ? schemes.front().max_len_tokens() : 700));
    return lengths;
  }
};

// Batches of nothing and of sequences that few mixes hold are among them.
TEST(MixJudge, FindsTheFirstOfTheLeastThatTryingAllFinds) {
  const Case of;
  ASSERT_GT(of.mixes.size(), 100U);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    base::Rng rng(seed, 61);
    const std::vector<int64_t> lengths = of.lengths(rng, 60);
    const DispatchOptions options{.trials = 5, .seed = seed};
    const MixJudge judge(lengths, of.schemes, options);
    size_t expected = 0;
    int64_t least_ns = MixJudge::kNever;
    for (size_t m = 0; m < of.mixes.size(); ++m) {
      const auto dispatched = dispatch(lengths, pipelines_of(of.mixes[m], of.schemes), options);
      const int64_t ns = dispatched ? dispatched->estimated_ns : MixJudge::kNever;
      ASSERT_EQ(judge.estimated_ns(of.mixes[m]), ns) << "seed " << seed << " mix " << m;
      if (ns >= least_ns) continue;
      least_ns = ns;
      expected = m;
    }
    for (const size_t guess :
         {size_t{0}, of.mixes.size() - 1, static_cast<size_t>(rng.below(of.mixes.size()))})
      EXPECT_EQ(judge.best_of(of.mixes, guess), expected) << "seed " << seed << " guess " << guess;
  }
}

TEST(MixJudge, BatchThatNoMixHoldsHasTheFirst) {
  const Case of;
  const MixJudge judge({of.schemes.front().max_len_tokens() * 2}, of.schemes, {});
  EXPECT_EQ(judge.best_of(of.mixes, 3), 0U);
}

// The best of all assignments ends by its own end.
TEST(EndBound, NoMixIsFullBeforeItsBestDispatchEnds) {
  const Case of;
  int ruled_out = 0, proved = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    base::Rng rng(seed, 63);
    const std::vector<int64_t> lengths = of.lengths(rng, 9);
    const plan::Mix& mix = of.mixes[rng.below(of.mixes.size())];
    const auto ideal = ideal_dispatch(lengths, pipelines_of(mix, of.schemes), {}, 1'000'000);
    if (!ideal || !ideal->proved) continue;
    ++proved;
    const LengthTimes times(lengths, of.schemes);
    EndBound bound(times);
    bound.set_end(ideal->best.estimated_ns);
    EXPECT_LE(bound.fullness(mix), EndBound::kFull) << "seed " << seed;
    bound.set_end(ideal->best.estimated_ns / 2);
    ruled_out += bound.fullness(mix) > EndBound::kFull ? 1 : 0;
  }
  EXPECT_GT(proved, 50);
  EXPECT_GT(ruled_out, 20);
}

}  // namespace
}  // namespace sluice::published
