#include "session/propose_for_both.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "cost/measured_passes.h"
#include "cost/shipped.h"
#include "plan/batch_sample.h"
#include "session/candidates.h"
#include "session/planning_inputs.h"

namespace sluice::session {
namespace {

constexpr int kProposedRanks = 16;

cost::CostModel cost_of(const char* calibration) {
  return cost::CostModel(cost::shipped(calibration).options);
}

plan::PlannerOptions small_options(int most) {
  plan::PlannerOptions options{.world_size = kProposedRanks,
                               .context_length = 8192,
                               .max_strategies = most,
                               .max_cp = kProposedRanks,
                               .max_fsdp = 0};
  std::vector<int64_t> lengths;
  for (int64_t i = 1; i <= 300; ++i) lengths.push_back(60 + (i * i * 37) % (i % 25 == 0 ? 8100 : 900));
  options.sample_batches = sample_batches(lengths, 32'768, /*seed=*/3);
  return options;
}

int64_t least(const std::vector<plan::Proposal>& proposals, int64_t plan::Proposal::*mean_ns) {
  int64_t least_ns = 0;
  for (const plan::Proposal& proposal : proposals) {
    const int64_t ns = proposal.*mean_ns;
    if (ns > 0 && (least_ns == 0 || ns < least_ns)) least_ns = ns;
  }
  return least_ns;
}

// Both assumptions' best strategies are included, with both times, which differ for gathers between nodes.
TEST(ProposeForBoth, KeepsTheBestUnderEachAssumption) {
  const plan::PlannerOptions options = small_options(8);
  const cost::CostModel cost = cost_of("a800-32b");
  const std::vector<plan::Proposal> both = propose_for_both(options, cost), one = propose(options, cost),
                                    other = propose(options, cost::with_measured_passes(cost));
  const auto gathers = [&](const plan::Proposal& of) {
    return cost::gathers_between_nodes(of.strategy, cost.options().topology);
  };
  ASSERT_TRUE(std::ranges::any_of(one, gathers)) << "nothing is assumed about these strategies";
  EXPECT_EQ(least(both, &plan::Proposal::mean_estimated_ns), least(one, &plan::Proposal::mean_estimated_ns));
  const auto best = std::ranges::min_element(other, {}, [](const plan::Proposal& of) {
    return std::pair(of.max_len_tokens < 8192, of.mean_estimated_ns);
  });
  EXPECT_NE(std::ranges::find(both, best->strategy, &plan::Proposal::strategy), both.end())
      << to_text(best->strategy);
  std::set<std::string> names;
  for (const plan::Proposal& proposal : both) {
    EXPECT_TRUE(names.insert(to_text(proposal.strategy)).second)
        << to_text(proposal.strategy) << " stands twice";
    if (proposal.mean_estimated_ns == 0) continue;
    if (gathers(proposal)) {
      EXPECT_GT(proposal.mean_measured_ns, proposal.mean_estimated_ns) << to_text(proposal.strategy);
    } else {
      EXPECT_EQ(proposal.mean_measured_ns, proposal.mean_estimated_ns) << to_text(proposal.strategy);
    }
  }
}

// With large experts, the best strategy under hidden gathers takes a multiple of its time if they are not
// hidden. A strategy with the same time either way has to be proposed, too.
TEST(ProposeForBoth, DoesNotBetOnHiddenGathersForMixturesOfExperts) {
  std::vector<int32_t> lengths;
  for (int32_t i = 1; i <= 400; ++i) lengths.push_back(100 + (i * i * 37) % (i % 20 == 0 ? 8000 : 2000));
  const PlanningInputs inputs = resolve_planning({.gpus = 64,
                                                  .cluster = "h100x8",
                                                  .model = "qwen3-30b-a3b",
                                                  .context_length = 8192,
                                                  .tokens_per_step = 1'048'576,
                                                  .max_strategies = 4,
                                                  .max_cp = 64},
                                                 lengths);
  const cost::CostModel cost = inputs.cost();
  const std::vector<plan::Proposal> both = propose_for_both(planner_options(inputs), cost);
  const auto holds = [](const plan::Proposal& of) {
    return of.max_len_tokens >= 8192 && of.mean_estimated_ns > 0;
  };
  const plan::Proposal* by_clock = nullptr;
  const plan::Proposal* as_measured = nullptr;
  for (const plan::Proposal& of : both) {
    if (!holds(of)) continue;
    if (by_clock == nullptr || of.mean_estimated_ns < by_clock->mean_estimated_ns) by_clock = &of;
    if (as_measured == nullptr || of.mean_measured_ns < as_measured->mean_measured_ns) as_measured = &of;
  }
  ASSERT_NE(by_clock, nullptr);
  EXPECT_TRUE(cost::gathers_between_nodes(by_clock->strategy, cost.options().topology));
  EXPECT_FALSE(cost::gathers_between_nodes(as_measured->strategy, cost.options().topology));
  EXPECT_EQ(as_measured->mean_measured_ns, as_measured->mean_estimated_ns);
  EXPECT_GT(by_clock->mean_measured_ns, 2 * as_measured->mean_measured_ns)
      << to_text(by_clock->strategy) << ", " << to_text(as_measured->strategy);
  EXPECT_LT(as_measured->mean_estimated_ns, 2 * by_clock->mean_estimated_ns);
}

TEST(ProposeForBoth, GivesNoMoreThanAreWanted) {
  for (const int most : {1, 2}) {
    const std::vector<plan::Proposal> both = propose_for_both(small_options(most), cost_of("a800-32b"));
    EXPECT_LE(std::ssize(both), most);
    EXPECT_GE(both.front().max_len_tokens, 8192);
  }
}

}  // namespace
}  // namespace sluice::session
