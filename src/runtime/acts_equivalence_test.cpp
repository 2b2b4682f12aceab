// Steps of several acts, each with part of the batch under its own plan, as HotSPa trains (Ge et al., 2024).
// Gradients, norms and parameters equal those of the whole batch on one rank.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/test_equivalence.h"
#include "runtime/test_two_parts.h"

namespace sluice::runtime {
namespace {

RunOptions acts_of(int acts, int world_size, std::vector<std::string> strategies) {
  RunOptions options;
  options.acts = acts;
  options.world_size = world_size;
  options.strategies = std::move(strategies);
  return options;
}

class Acts : public testing::Test {
 protected:
  static const RunRecord& one_rank() {
    static const RunRecord record = run_in_process({});
    return record;
  }
  static void expect_same(const RunOptions& options) {
    expect_equal(run_in_process(options), one_rank(), 1e-11, 1e-11);
  }
};

TEST_F(Acts, OfOneRankAreTheWholeBatch) {
  expect_same(acts_of(2, 1, {"<1,1,1>"}));
  expect_same(acts_of(3, 1, {"<1,1,1>"}));
}

TEST_F(Acts, EachUnderAStrategyOfItsOwn) {
  expect_same(acts_of(2, 4, {"4x<1,1,1>", "<2,2,1>"}));
  expect_same(acts_of(3, 4, {"4x<1,1,1>", "2x<2,1,1>", "<1,2,2>"}));
}

TEST_F(Acts, WithSharedParametersAndLanes) {
  RunOptions options = acts_of(2, 4, {"<1,1,4,4>", "<1,1,2> + 2x<1,1,1>"});
  expect_same(options);
  options.plan = ringed_plan;
  expect_same(options);
}

// As after a lost rank, or from a checkpoint: no act leaves sums behind its step.
TEST_F(Acts, ContinueOnOtherRanks) {
  constexpr int64_t kSteps = 6, kLost = 3;
  RunOptions whole;
  whole.steps = kSteps;
  const RunRecord one = run_in_process(whole);
  const RunOptions before = acts_of(2, 4, {"4x<1,1,1>", "<2,2,1>"}),
                   behind = acts_of(3, 3, {"<1,1,3,3>", "3x<1,1,1>"});
  const RunRecord all = run_in_two_parts(before, behind, kLost, kSteps);
  expect_equal(all, one, 1e-11, 1e-11);
}

TEST_F(Acts, OfAMixtureCountItsExpertsOnce) {
  RunOptions options;
  options.model.experts = {.count = 4, .per_token = 2, .hidden = 8, .normalised = true};
  const RunRecord one = run_in_process(options);
  options.acts = 2;
  options.world_size = 4;
  options.strategies = {"4x<1,1,1>", "<2,2,1>"};
  expect_equal(run_in_process(options), one, 1e-11, 1e-11);
}

}  // namespace
}  // namespace sluice::runtime
