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

cost::CostModel peak_cost() { return cost::CostModel(cost::shipped("a800-7b").options); }

plan::PlannerOptions peak_options() {
  plan::PlannerOptions options{.world_size = kPeakRanks,
                               .context_length = 8192,
                               .max_strategies = 3,
                               .max_cp = kPeakRanks,
                               .max_fsdp = 0};
  std::vector<int64_t> lengths;
  for (int64_t i = 1; i <= 300; ++i) lengths.push_back(60 + (i * i * 37) % (i % 25 == 0 ? 8100 : 900));
  options.sample_batches = sample_batches(lengths, 32'768, /*seed=*/3);
  return options;
}

// The slow twin: the fullest device of the one strategy's own planner.
int64_t peak_of(plan::PlannerOptions options, const plan::Proposal& proposal,
                const std::vector<int64_t>& batch) {
  options.candidates = {proposal.strategy};
  const plan::Planner planner = make_planner(options, peak_cost());
  const model::ParameterTable table =
      model::parameter_table(planner.cost().options().model, planner.cost().program());
  const graph::StepGraph graph =
      graph::build(planner.plan(0, plan::sequences_of(batch)), table, planner.cost(), options.world_size, {});
  return std::ranges::max(predicted_memory(graph, planner.cost()), {}, &graph::RankMemory::peak_bytes)
      .peak_bytes;
}

TEST(ProposalMemory, PeaksAreOfTheBatchWithTheLongestSequence) {
  const plan::PlannerOptions options = peak_options();
  const std::vector<plan::Proposal> proposals = propose(options, peak_cost());
  const std::vector<int64_t> peaks = device_peaks_bytes(options, peak_cost(), proposals);
  ASSERT_EQ(peaks.size(), proposals.size());
  const auto longest_of = [](const std::vector<int64_t>& batch) { return std::ranges::max(batch); };
  const std::vector<int64_t>& longest = *std::ranges::max_element(options.sample_batches, {}, longest_of);
  for (size_t i = 0; i < proposals.size(); ++i) {
    EXPECT_GT(peaks[i], 0) << to_text(proposals[i].strategy);
    EXPECT_LE(peaks[i], peak_cost().device_bytes()) << to_text(proposals[i].strategy);
    if (proposals[i].max_len_tokens < options.context_length) continue;
    EXPECT_EQ(peaks[i], peak_of(options, proposals[i], longest)) << to_text(proposals[i].strategy);
  }
}

TEST(ProposalMemory, NothingIsSaidOfWhatHoldsNoBatchOrOfTooManyRanks) {
  plan::PlannerOptions options = peak_options();
  std::vector<plan::Proposal> proposals = propose(options, peak_cost());
  proposals.back().max_len_tokens = 1;
  EXPECT_EQ(device_peaks_bytes(options, peak_cost(), proposals).back(), 0);
  EXPECT_TRUE(device_peaks_bytes(options, peak_cost(), {}).empty());
  options.world_size = kMostClockedRanks + 1;
  EXPECT_EQ(device_peaks_bytes(options, peak_cost(), proposals), std::vector<int64_t>(proposals.size(), 0));
}

}  // namespace
}  // namespace sluice::session
