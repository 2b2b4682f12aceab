// Sequences with branches: runs are the same under any strategy and memory policy, and take the predicted
// memory.
#include <gtest/gtest.h>

#include "model/outline.h"
#include "runtime/test_equivalence.h"

namespace sluice::runtime {
namespace {

using strategy::MemoryPolicy;

class EquivalenceOfBranches : public testing::Test {
 protected:
  static RunOptions branching(const model::Outline& outline) {
    RunOptions options;
    options.model = outline;
    options.branches = 4;
    return options;
  }
  static model::Outline through_windows() {
    model::Outline outline = model::outline_of_odd_sizes();
    outline.window = 7;
    outline.block_types = {{.windowed = true}, {}, {.windowed = true}, {}};
    return outline;
  }
  static model::Outline with_experts() {
    model::Outline outline = model::outline_of_odd_sizes();
    outline.experts = {.count = 5, .per_token = 2, .hidden = 14, .normalised = true};
    return outline;
  }
};

// A prefix and its branches lie whole beside other sequences, in rings, in head groups, behind windows, and
// with shared parameters and experts.
TEST_F(EquivalenceOfBranches, DoesNotKnowTheStrategy) {
  for (const model::Outline& outline : {model::outline_of_odd_sizes(), through_windows(), with_experts()}) {
    RunOptions options = branching(outline);
    const RunRecord reference = run_in_process(options);
    options.world_size = 8;
    options.exchanges = {{}, {.head_lanes = 0}, {.head_lanes = 2}};
    options.strategies = {"<1,1,8>", "<2,1,4>", "<1,2,4>", "8x<1,1,1>", "<1,1,8,2>", "<1,2,3> + <2,1,1>"};
    for (const Plan& plan : {Plan(packed_plan), Plan(dealt_plan), Plan(ringed_plan)}) {
      options.plan = plan;
      const RunRecord record = run_in_process(options);
      expect_equal(record, reference, 1e-11, 1e-11);
      if (outline.window == 0) {
        EXPECT_EQ(record.exchange_bytes, record.expected_exchange_bytes);
      }
    }
  }
}

TEST_F(EquivalenceOfBranches, MemoryPoliciesChangeNothingAtAll) {
  for (const model::Outline& outline : {model::outline_of_odd_sizes(), through_windows()}) {
    RunOptions options = branching(outline);
    options.world_size = 4;
    options.steps = 3;
    options.strategies = {"<1,1,4>", "<2,1,1> + 2x<1,1,1>", "<1,2,2>"};
    options.plan = packed_plan;
    options.exchanges = {{}, {.head_lanes = 0}};
    const RunRecord kept = run_in_process(options);
    for (const MemoryPolicy& policy : {MemoryPolicy{.recompute_permille = 1000},
                                       {.offload_permille = 300},
                                       {.recompute_permille = 1000, .offload_permille = 1000}}) {
      options.policies = {policy};
      const RunRecord run = run_in_process(options);
      EXPECT_EQ(run.losses, kept.losses) << to_text(policy);
      EXPECT_EQ(run.parameters, kept.parameters) << to_text(policy);
    }
  }
}

// Gradients of attention are summed in separate tensors, as in a ring. The prediction counts those tensors
// even if the fullest micro-batch has no branches.
TEST_F(EquivalenceOfBranches, PeakBytesAreNotAboveThePredictedOnes) {
  RunOptions options = branching(model::outline_of_odd_sizes());
  options.steps = 3;
  options.model.layers = 8;
  options.max_tokens = 192;
  options.sequences = 16;
  for (const char* strategy : {"<1,1,1>", "<2,1,1>", "<1,2,1>", "<1,1,2>"}) {
    options.world_size = strategy::parse_strategy(strategy, 2).ranks();
    options.strategies = {strategy};
    for (const MemoryPolicy& policy : {MemoryPolicy{}, {.recompute_permille = 1000}}) {
      options.policies = {policy};
      const RunRecord run = run_in_process(options);
      for (size_t step = 0; step < run.peak_bytes.size(); ++step) {
        for (size_t rank = 0; rank < run.peak_bytes[step].size(); ++rank) {
          const auto measured = static_cast<double>(run.peak_bytes[step][rank]);
          const auto predicted = static_cast<double>(run.predicted_peak_bytes[step][rank]);
          EXPECT_LE(measured, 1.02 * predicted) << strategy << ", step " << step << ", rank " << rank;
          EXPECT_GE(measured, 0.85 * predicted) << strategy << ", step " << step << ", rank " << rank;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::runtime
