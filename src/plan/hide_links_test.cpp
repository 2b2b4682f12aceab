#include "plan/hide_links.h"

#include <gtest/gtest.h>

#include <numeric>

#include "plan/test_models.h"

namespace sluice::plan {
namespace {

strategy::Pipeline ranked_pipeline(const strategy::Scheme& scheme) {
  strategy::Pipeline pipeline{.scheme = scheme,
                              .ranks = std::vector<int>(static_cast<size_t>(scheme.ranks()))};
  std::iota(pipeline.ranks.begin(), pipeline.ranks.end(), 0);
  return pipeline;
}

class HideLinks : public testing::Test {
 protected:
  // Micro-batches of which each lies on these lanes and has these sequences, in the order of injection.
  struct Placed {
    LaneRun lanes;
    std::vector<int> sequences;
    std::optional<int> pass = {};
  };
  TimedMicroBatches hidden(const strategy::Scheme& scheme, const std::vector<int64_t>& lengths,
                           const std::vector<Placed>& placed) {
    const strategy::Pipeline pipeline = ranked_pipeline(scheme);
    const SchemeCost priced(scheme, cost_, scheme.ranks());
    std::vector<int> members(lengths.size());
    std::iota(members.begin(), members.end(), 0);
    Packing packing(pipeline, priced, lengths, members, {});
    TimedMicroBatches micro_batches;
    for (const Placed& of : placed) {
      strategy::PipelineMicroBatch& micro_batch = micro_batches.micro_batches.emplace_back(
          strategy::PipelineMicroBatch{.first_lane = of.lanes.first, .lanes = of.lanes.lanes});
      micro_batch.pass = of.pass;
      for (const int s : of.sequences) micro_batch.sequences.push_back({s, lengths[static_cast<size_t>(s)]});
    }
    micro_batches.makespan_ns = before_ns_ = packing.timer.makespan_ns(micro_batches.micro_batches);
    hide_links(packing, micro_batches);
    EXPECT_EQ(packing.timer.makespan_ns(micro_batches.micro_batches), micro_batches.makespan_ns);
    EXPECT_LE(micro_batches.makespan_ns, before_ns_ + 3 * std::ssize(micro_batches.micro_batches));
    return micro_batches;
  }

  const cost::CostModel cost_ = test_cost();
  int64_t before_ns_ = 0;
};

TEST_F(HideLinks, LanesBeginWithTheirLongestUnits) {
  const TimedMicroBatches micro_batches =
      hidden({.cp = 2}, {1800, 300, 200}, {{{0, 1}, {1}}, {{1, 1}, {2}}, {{0, 2}, {0}}});
  ASSERT_EQ(micro_batches.micro_batches.size(), 3U);
  EXPECT_EQ(micro_batches.micro_batches.front().lanes, 2);
  EXPECT_EQ(micro_batches.micro_batches.front().sequences.front().sequence, 0);
}

TEST_F(HideLinks, WhatALaneRunsAloneBecomesEven) {
  const TimedMicroBatches micro_batches =
      hidden({.cp = 2}, {400, 400, 400, 400}, {{{0, 1}, {0, 1, 2}}, {{0, 1}, {3}}});
  ASSERT_EQ(micro_batches.micro_batches.size(), 2U);
  for (const strategy::PipelineMicroBatch& micro_batch : micro_batches.micro_batches)
    EXPECT_EQ(micro_batch.tokens(), 800);
}

TEST_F(HideLinks, PassesAreNumberedAnewInTheirOrder) {
  const TimedMicroBatches micro_batches =
      hidden({.cp = 2, .fsdp = 2}, {300, 200, 900, 800},
             {{{0, 1}, {0}, 0}, {{1, 1}, {1}, 0}, {{0, 1}, {2}, 1}, {{1, 1}, {3}, 1}});
  ASSERT_EQ(micro_batches.micro_batches.size(), 4U);
  for (size_t u = 0; u < 4; ++u) {
    EXPECT_EQ(micro_batches.micro_batches[u].pass, static_cast<int>(u / 2));
    EXPECT_EQ(micro_batches.micro_batches[u].tokens() > 500, u < 2);
  }
}

TEST_F(HideLinks, SeveralStagesStayAsTheyAre) {
  const TimedMicroBatches micro_batches = hidden({.pp = 2}, {100, 900}, {{{0, 1}, {0}}, {{0, 1}, {1}}});
  EXPECT_EQ(micro_batches.makespan_ns, before_ns_);
  EXPECT_EQ(micro_batches.micro_batches.front().tokens(), 100);
}

}  // namespace
}  // namespace sluice::plan
