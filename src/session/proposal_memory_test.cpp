#include "session/proposal_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cost/shipped.h"
#include "graph/build.h"
#include "graph/memory.h"
#include "model/parameters.h"
#include "plan/batch_sample.h"
#include "session/candidates.h"
#include "session/codec_choice.h"

namespace sluice::session {
namespace {

constexpr int kPeakRanks = 16;

PlanningTask peak_task() {
  PlanningTask task{.world_size = kPeakRanks,
                    .cost = cost::CostModel(cost::shipped("a800-7b").options),
                    .context_length = 8192,
                    .choices = {.max_strategies = 3, .max_cp = kPeakRanks, .fsdp = true}};
  std::vector<int64_t> lengths;
  for (int64_t i = 1; i <= 300; ++i) lengths.push_back(60 + (i * i * 37) % (i % 25 == 0 ? 8100 : 900));
  task.sample_batches = sample_batches(lengths, 32'768, /*seed=*/3);
  return task;
}

// The slow twin: the fullest device of the one strategy's own planner.
int64_t peak_of(PlanningTask task, const plan::Proposal& proposal, const std::vector<int64_t>& batch) {
  task.choices.strategies = {proposal.strategy};
  const plan::Planner planner = make_planner(task);
  const model::ParameterTable table =
      model::parameter_table(planner.cost().options().model, planner.cost().program());
  const graph::StepGraph graph =
      graph::build(planner.plan(0, plan::sequences_of(batch)), table, planner.cost(), task.world_size, {});
  return std::ranges::max(predicted_memory(graph, planner.cost()), {}, &graph::RankMemory::peak_bytes)
      .peak_bytes;
}

TEST(ProposalMemory, PeaksAreOfTheBatchWithTheLongestSequence) {
  const PlanningTask task = peak_task();
  const std::vector<plan::Proposal> proposals = propose(task);
  const std::vector<int64_t> peaks = device_peaks_bytes(task, proposals);
  ASSERT_EQ(peaks.size(), proposals.size());
  const auto longest_of = [](const std::vector<int64_t>& batch) { return std::ranges::max(batch); };
  const std::vector<int64_t>& longest = *std::ranges::max_element(task.sample_batches, {}, longest_of);
  for (size_t i = 0; i < proposals.size(); ++i) {
    EXPECT_GT(peaks[i], 0) << to_text(proposals[i].strategy);
    EXPECT_LE(peaks[i], task.cost.device_bytes()) << to_text(proposals[i].strategy);
    if (proposals[i].max_len_tokens < task.context_length) continue;
    EXPECT_EQ(peaks[i], peak_of(task, proposals[i], longest)) << to_text(proposals[i].strategy);
  }
}

TEST(ProposalMemory, NothingIsSaidOfWhatHoldsNoBatchOrOfTooManyRanks) {
  PlanningTask task = peak_task();
  std::vector<plan::Proposal> proposals = propose(task);
  proposals.back().max_len_tokens = 1;
  EXPECT_EQ(device_peaks_bytes(task, proposals).back(), 0);
  EXPECT_TRUE(device_peaks_bytes(task, {}).empty());
  task.world_size = kMostClockedRanks + 1;
  EXPECT_EQ(device_peaks_bytes(task, proposals), std::vector<int64_t>(proposals.size(), 0));
}

}  // namespace
}  // namespace sluice::session
