#include "published/paper_propose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/rng.h"
#include "plan/test_models.h"

namespace sluice::published {
namespace {

constexpr int64_t kParts = 10;
constexpr int64_t kInfinite = std::numeric_limits<int64_t>::max();

// t[n][l] of Eq. 4 by every transition.
std::vector<std::vector<int64_t>> literal(const std::vector<FractionalStrategies::Choice>& choices,
                                          int places, int64_t parts) {
  const auto columns = static_cast<size_t>(places) + 1;
  std::vector<std::vector<int64_t>> t(static_cast<size_t>(parts) + 1,
                                      std::vector<int64_t>(columns, kInfinite));
  for (size_t n = 0; n < t.size(); ++n) {
    t[n][0] = 0;
    for (size_t l = 1; l < columns; ++l) {
      if (n > 0) t[n][l] = t[n - 1][l];
      for (const FractionalStrategies::Choice& choice : choices) {
        if (static_cast<size_t>(choice.reach) < l) continue;
        for (size_t d = 1; d * static_cast<size_t>(choice.ranks) <= n; ++d) {
          const size_t left = n - d * static_cast<size_t>(choice.ranks);
          for (size_t s = 0; s < l; ++s) {
            const int64_t work = (choice.work_ns[l] - choice.work_ns[s]) * kParts;
            const auto own = (work + static_cast<int64_t>(d) - 1) / static_cast<int64_t>(d);
            t[n][l] = std::min(t[n][l], std::max(t[left][s], own));
          }
        }
      }
    }
  }
  return t;
}

TEST(PaperPropose, TimesEqualEquationFourByEveryTransition) {
  int infinite = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    base::Rng rng(seed, 51);
    const int places = static_cast<int>(rng.between(1, 6));
    const int64_t ranks = rng.between(1, 4);
    std::vector<FractionalStrategies::Choice> choices;
    for (int64_t k = rng.between(1, 3); k > 0; --k) {
      FractionalStrategies::Choice choice{
          .ranks = rng.between(1, 4), .reach = static_cast<int>(rng.between(1, places)), .work_ns = {0}};
      for (int place = 1; place <= choice.reach; ++place) {
        choice.work_ns.push_back(choice.work_ns.back() + (rng.below(4) == 0 ? 0 : rng.between(1, 2000)));
      }
      choices.push_back(choice);
    }
    const auto t = literal(choices, places, ranks * kParts);
    const FractionalStrategies fast(choices, places, kParts);
    int64_t known = 1;
    for (int place = 1; place <= places; ++place) {
      const int64_t expected = t[static_cast<size_t>(ranks * kParts)][static_cast<size_t>(place)];
      const std::optional<int64_t> time_ns = fast.time_ns(ranks * kParts, place, known);
      ASSERT_EQ(time_ns.has_value(), expected != kInfinite) << "seed " << seed;
      infinite += time_ns ? 0 : 1;
      if (!time_ns) break;
      EXPECT_EQ(*time_ns, std::max<int64_t>(expected, 1)) << "seed " << seed << " place " << place;
      known = *time_ns;

      const std::vector<int64_t> pipelines = fast.pipelines(*time_ns, place);
      int64_t used = 0;
      bool holds = false;
      for (size_t k = 0; k < choices.size(); ++k) {
        used += pipelines[k] * choices[k].ranks;
        holds = holds || (pipelines[k] > 0 && choices[k].reach >= place);
      }
      EXPECT_LE(used, ranks * kParts);
      EXPECT_TRUE(holds);
    }
  }
  EXPECT_GT(infinite, 0);
}

struct Four {
  cost::CostModel cost = plan::test_cost();
  std::vector<plan::SchemeCost> schemes = {plan::SchemeCost({.tp = 2, .pp = 2}, cost, 8),
                                           plan::SchemeCost({.tp = 2}, cost, 8),
                                           plan::SchemeCost({}, cost, 8)};
  int64_t longest = schemes[2].max_len_tokens() + 1;  // only the first two hold it
};

TEST(PaperPropose, RoundingsAreAllNearbyOnesThatFit) {
  const Four of;
  // 0.6 and 2.2 and 1.2 pipelines of 4, 2 and 1 ranks: 8 ranks.
  const std::vector<int64_t> parts = {6, 22, 12};
  const std::vector<plan::Mix> mixes = nearby_mixes(parts, kParts, of.schemes, 8, of.longest);
  // (0, 3, 2) is above (0, 2, 1) and others; with the first pipeline the most numerous give way.
  EXPECT_EQ(mixes, (std::vector<plan::Mix>{{0, 3, 2}, {1, 1, 2}}));
}

TEST(PaperPropose, TheLastHolderStays) {
  const Four of;
  const std::vector<int64_t> parts = {1, 0, 76};
  for (const plan::Mix& mix : nearby_mixes(parts, kParts, of.schemes, 8, of.longest))
    EXPECT_EQ(mix, (plan::Mix{1, 0, 4}));
}

TEST(PaperPropose, StrategiesAreValidAndTheFirstHoldsTheContext) {
  const cost::CostModel cost = plan::test_cost();
  base::Rng rng(5, 52);
  plan::PlannerOptions options{.world_size = 8, .context_length = 6000, .max_strategies = 6};
  for (int batch = 0; batch < 6; ++batch) {
    options.sample_batches.emplace_back();
    for (int i = 0; i < 40; ++i) {
      options.sample_batches.back().push_back(rng.between(2, rng.below(15) == 0 ? 6000 : 600));
    }
  }
  const std::vector<plan::Proposal> proposals = paper_propose(options, cost).or_throw();
  ASSERT_FALSE(proposals.empty());
  EXPECT_LE(proposals.size(), 6u);
  EXPECT_GE(proposals[0].max_len_tokens, options.context_length);
  double frequency = 0;
  for (const plan::Proposal& proposal : proposals) {
    EXPECT_NO_THROW(strategy::validate(proposal.strategy, 8));
    frequency += proposal.frequency;
  }
  EXPECT_GT(frequency, 0.5);
  EXPECT_EQ(plan::strategies_of(proposals), plan::strategies_of(paper_propose(options, cost).or_throw()));
  options.context_length = 1 << 30;
  EXPECT_FALSE(paper_propose(options, cost));
}

}  // namespace
}  // namespace sluice::published
