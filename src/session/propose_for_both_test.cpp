#include "session/propose_for_both.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "cost/measured_passes.h"
#include "cost/shipped.h"
#include "plan/batch_sample.h"
#include "session/candidates.h"

namespace sluice::session {
namespace {

constexpr int kRanks = 16;

PlanningTask task_of(const char* calibration, int most) {
  PlanningTask task{.world_size = kRanks,
                    .cost = cost::CostModel(cost::shipped(calibration).options),
                    .context_length = 8192,
                    .choices = {.max_strategies = most, .max_cp = kRanks, .share = true}};
  std::vector<int64_t> lengths;
  for (int64_t i = 1; i <= 300; ++i) lengths.push_back(60 + (i * i * 37) % (i % 25 == 0 ? 8100 : 900));
  task.sample_batches = sample_batches(lengths, 32'768, /*seed=*/3);
  return task;
}

int64_t least(const std::vector<plan::Proposal>& proposals, int64_t plan::Proposal::*mean_ns) {
  int64_t least_ns = 0;
  for (const plan::Proposal& proposal : proposals) {
    const int64_t ns = proposal.*mean_ns;
    if (ns > 0 && (least_ns == 0 || ns < least_ns)) least_ns = ns;
  }
  return least_ns;
}

// Both assumptions' best are there, with both figures, which differ where a strategy gathers between nodes.
TEST(ProposeForBoth, KeepsTheBestUnderEachAssumption) {
  const PlanningTask task = task_of("a800-32b", 8);
  PlanningTask measured = task;
  measured.cost = cost::with_measured_passes(task.cost);
  const std::vector<plan::Proposal> both = propose_for_both(task), one = propose(task),
                                    other = propose(measured);
  const auto gathers = [&](const plan::Proposal& of) {
    return cost::gathers_between_nodes(of.strategy, task.cost.options().topology);
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

TEST(ProposeForBoth, GivesNoMoreThanAreWanted) {
  for (const int most : {1, 2}) {
    const std::vector<plan::Proposal> both = propose_for_both(task_of("a800-32b", most));
    EXPECT_LE(std::ssize(both), most);
    EXPECT_GE(both.front().max_len_tokens, 8192);
  }
}

}  // namespace
}  // namespace sluice::session
