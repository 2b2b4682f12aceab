// A model cut into trunks, each under strategies of its own, trains as one rank trains the whole: losses,
// norms and parameters to 1e-11 in FP64, and row links carry the bytes of the formula.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/test_tuning.h"
#include "runtime/test_equivalence.h"
#include "runtime/test_two_parts.h"

namespace sluice::runtime {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 4;

// TP, lanes and rings, FSDP, stages, and pipelines of different kinds.
const std::vector<std::string>& kinds_of_strategies() {
  static const std::vector<std::string> all{"4x<1,1,1>", "2x<2,1,1>", "<1,2,2>", "<1,1,4,4>",
                                            "<1,1,2> + <2,1,1>"};
  return all;
}

RunOptions two_trunks(std::vector<std::string> first, std::vector<std::string> second,
                      int world_size = kRanks) {
  RunOptions options;
  options.world_size = world_size;
  options.strategies = {"<1,1,1>"};
  options.trunks = {{0, 3}, {3, 6}};  // embedding and two blocks; two blocks and the head
  options.trunk_strategies = {std::move(first), std::move(second)};
  return options;
}

void expect_rows_by_formula(const RunRecord& record) {
  EXPECT_FALSE(record.row_bytes.empty());
  EXPECT_EQ(record.row_bytes, record.expected_row_bytes);
}

class Trunks : public testing::Test {
 protected:
  static const RunRecord& one_rank() {
    static const RunRecord record = run_in_process({});
    return record;
  }
  static void expect_as_one_rank(const RunOptions& options) {
    const RunRecord record = run_in_process(options);
    expect_equal(record, one_rank(), 1e-11, 1e-11);
    expect_rows_by_formula(record);
  }
};

TEST_F(Trunks, OfOneRankAreTheModel) { expect_as_one_rank(two_trunks({"<1,1,1>"}, {"<1,1,1>"}, 1)); }

TEST_F(Trunks, UnderEveryPairOfStrategies) {
  for (const std::string& first : kinds_of_strategies()) {
    for (const std::string& second : kinds_of_strategies()) {
      SCOPED_TRACE(first + " | " + second);
      expect_as_one_rank(two_trunks({first}, {second}));
    }
  }
}

TEST_F(Trunks, OfOneBlockEach) {
  RunOptions options = two_trunks({}, {});
  options.trunks = {{0, 2}, {2, 3}, {3, 4}, {4, 6}};
  options.trunk_strategies = {{"2x<2,1,1>"}, {"<1,1,4,4>"}, {"4x<1,1,1>"}, {"<2,1,2>"}};
  expect_as_one_rank(options);
}

TEST_F(Trunks, ChangeTheirStrategiesFromStepToStep) {
  expect_as_one_rank(two_trunks({"4x<1,1,1>", "<2,2,1>"}, {"<1,1,2,2> + 2x<1,1,1>", "2x<2,1,1>", "<1,2,2>"}));
}

TEST_F(Trunks, OnRingsOfAllLanes) {
  RunOptions options = two_trunks({"<1,1,4>", "<2,1,2>"}, {"<1,2,2>", "<1,1,4,2>"});
  options.plan = ringed_plan;
  expect_as_one_rank(options);
  options.exchanges = {{0}, {2}, {1, strategy::Exchange::kBalanced}, {1, strategy::Exchange::kQueries}};
  expect_as_one_rank(options);
}

TEST_F(Trunks, OnNodesOfTwoRanks) {
  RunOptions options = two_trunks({"<1,2,2>", "2x<2,1,1>"}, {"<1,1,4,4>", "<3,1,1>"});
  options.gpus_per_node = 2;
  options.max_delay_ns = 100'000;
  expect_as_one_rank(options);
}

TEST_F(Trunks, RecomputeAndOffloadApart) {
  RunOptions options = two_trunks({"<1,1,2> + 2x<1,1,1>", "4x<1,1,1>"}, {"<1,2,2>", "<1,1,4,4>"});
  options.model.layers = 8;
  const RunRecord one = [&] {
    RunOptions whole;
    whole.model = options.model;
    return run_in_process(whole);
  }();
  options.trunks = {{0, 5}, {5, 10}};
  const strategy::MemoryPolicy recompute{.recompute_permille = 1000}, offload{.offload_permille = 500},
      both{.recompute_permille = 500, .offload_permille = 1000};
  options.trunk_policies = {{recompute, {}, both}, {offload, both}};
  const RunRecord record = run_in_process(options);
  expect_equal(record, one, 1e-11, 1e-11);
  expect_rows_by_formula(record);
}

// The head of the second trunk reads and learns the first one's embedding.
TEST_F(Trunks, ThatShareTheEmbedding) {
  RunOptions whole;
  whole.model.tie_embeddings = !whole.model.tie_embeddings;
  const RunRecord one = run_in_process(whole);
  RunOptions options = two_trunks({"2x<2,1,1>", "<1,1,4,4>"}, {"<1,2,2>", "4x<1,1,1>"});
  options.model = whole.model;
  expect_equal(run_in_process(options), one, 1e-11, 1e-11);
}

TEST_F(Trunks, WhoseFirstIsFrozenLearnWithoutIt) {
  RunOptions whole;
  model::freeze(whole.model, {"model.embed_tokens", "model.layers.[01]"});
  const RunRecord one = run_in_process(whole);
  RunOptions options = two_trunks({"2x<2,1,1>", "<1,1,4,4>"}, {"<1,2,2>", "4x<1,1,1>"});
  options.model = whole.model;
  const RunRecord record = run_in_process(options);
  expect_equal(record, one, 1e-11, 1e-11);
  expect_rows_by_formula(record);
}

// As after a lost rank, or from a checkpoint: owners have all state that acts leave from step to step.
TEST_F(Trunks, ContinueOnOtherRanksUnderOtherPairs) {
  constexpr int64_t kSteps = 8, kLost = 4;
  RunOptions whole;
  whole.steps = kSteps;
  const RunRecord one = run_in_process(whole);
  const RunOptions before = two_trunks({"2x<2,1,1>", "<1,1,4,4>"}, {"<1,2,2>", "<1,1,2> + <2,1,1>"}),
                   behind = two_trunks({"<1,1,3,3>", "<3,1,1>"}, {"3x<1,1,1>", "<1,2,1> + <1,1,1>"}, 3);
  const RunRecord all = run_in_two_parts(before, behind, kLost, kSteps);
  expect_equal(all, one, 1e-11, 1e-11);
}

TEST_F(Trunks, OfAMixtureWhoseExpertsLanesDivide) {
  RunOptions whole;
  whole.model.experts = {.count = 4, .per_token = 2, .hidden = 8, .normalised = true};
  const RunRecord one = run_in_process(whole);
  RunOptions options = two_trunks({"<1,1,4,4,2>", "4x<1,1,1>"}, {"<1,1,4,4,4>", "2x<2,1,1>"});
  options.model = whole.model;
  expect_equal(run_in_process(options), one, 1e-11, 1e-11);
}

TEST_F(Trunks, ThatNoStageHoldsAreRefusedByName) {
  try {
    run_in_process(two_trunks({"<1,4,1>"}, {"4x<1,1,1>"}));
    FAIL() << "four stages of two blocks";
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("4 stages but the trunk has 2 layers: lower pp"));
  }
}

TEST_F(Trunks, WithoutABlockAreRefused) {
  const model::Program program(model::outline_of_odd_sizes());
  EXPECT_THROW(program.trunk({0, 1}), base::InputError);
  EXPECT_THROW(program.trunk({5, 6}), base::InputError);
  EXPECT_THROW(program.trunk({3, 9}), base::InputError);
}

}  // namespace
}  // namespace sluice::runtime
