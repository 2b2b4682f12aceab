#include "session/codec_choice.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "cost/shipped.h"
#include "session/candidates.h"
#include "session/propose_for_both.h"
#include "session/step_overhead.h"

namespace sluice::session {
namespace {

constexpr int kCodecRanks = 16;

// Two nodes of eight devices; their adapters move so many bytes a second.
cost::CostModel cost_with_links(int64_t bytes_per_s) {
  cost::CostModel::Options options = cost::shipped("a800-7b").options;
  options.inter.bytes_per_s = bytes_per_s;
  options.code_ps_per_element = 10;
  return cost::CostModel(std::move(options));
}

plan::PlannerOptions codec_options() {
  plan::PlannerOptions options{.world_size = kCodecRanks,
                               .context_length = 8192,
                               .max_strategies = 2,
                               .max_cp = kCodecRanks,
                               .max_fsdp = 0};
  std::vector<int64_t> lengths;
  for (int64_t i = 1; i <= 300; ++i) lengths.push_back(60 + (i * i * 37) % (i % 25 == 0 ? 8100 : 900));
  options.sample_batches = sample_batches(lengths, 32'768, /*seed=*/3);
  return options;
}

TEST(CodecChoice, FewerBitsAreChosenWhereLinksAreSlow) {
  const cost::CostModel cost = cost_with_links(200'000'000);
  plan::PlannerOptions options = codec_options();
  const std::vector<plan::Proposal> proposals = propose(options, cost);
  const auto choice = choose_codecs(options, cost, proposals);
  ASSERT_TRUE(choice.has_value());
  ASSERT_FALSE(choice->settings.empty());
  EXPECT_EQ(choice->settings.front().rfind("link.push", 0), 0U) << choice->settings.front();
  EXPECT_LE(choice->mean_ns, choice->wide_mean_ns - choice->wide_mean_ns / 50);
  EXPECT_NE(choice->codecs, strategy::WireCodecs{});
  const base::Json json = to_json(*choice);
  EXPECT_EQ(json.at("settings").size(), choice->settings.size());
  EXPECT_EQ(json.at("mean_step_ns"), choice->mean_ns);
}

// Planners that other comparisons made are used, and change nothing.
TEST(CodecChoice, IsTheSameWithKnownPlanners) {
  const cost::CostModel cost = cost_with_links(200'000'000);
  plan::PlannerOptions options = codec_options();
  options.max_cp = options.max_fsdp = kCodecRanks;
  options.policies = {{}};
  ComparedPlanners planners;
  const std::vector<plan::Proposal> proposals = propose_for_both(options, cost, planners);
  const auto alone = choose_codecs(options, cost, proposals);
  ASSERT_TRUE(alone.has_value());
  const ComparedPlanner& known = planners.of(alone->strategy, plan::for_comparing(options), cost);
  const auto choice = choose_codecs(options, cost, proposals, planners);
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(to_json(*choice), to_json(*alone));
  EXPECT_EQ(&planners.of(alone->strategy, plan::for_comparing(options), cost), &known);
}

// Quick plans of wide numbers are those that planners were compared by.
TEST(CodecChoice, OfQuickPlansTakesTheComparedBatches) {
  const cost::CostModel cost = cost_with_links(200'000'000);
  plan::PlannerOptions options = codec_options();
  options.max_cp = options.max_fsdp = kCodecRanks;
  options.policies = {{}};
  options.effort = plan::Effort::kQuick;
  ComparedPlanners planners;
  const std::vector<plan::Proposal> proposals = propose(options, cost);
  const auto choice = choose_codecs(options, cost, proposals, planners);
  ASSERT_TRUE(choice.has_value());
  const ComparedPlanner& known = planners.of(choice->strategy, plan::for_comparing(options), cost);
  const auto beside = clocked_step_overhead(options, known.planner.cost());
  int64_t sum_ns = 0, batches = 0;
  for (const size_t batch : compared_batches(options)) {
    sum_ns += clocked_step_ns(known.planner, options.sample_batches[batch], *beside).value();
    ++batches;
  }
  EXPECT_EQ(batches, 3);
  EXPECT_EQ(choice->wide_mean_ns, sum_ns / batches);
}

TEST(CodecChoice, NothingIsLostWhereItSavesNothing) {
  const cost::CostModel cost = cost_with_links(int64_t{1} << 44);
  plan::PlannerOptions options = codec_options();
  EXPECT_FALSE(choose_codecs(options, cost, propose(options, cost)).has_value());
  EXPECT_FALSE(choose_codecs(options, cost, {}).has_value()) << "no proposal";
}

TEST(CodecChoice, OneRankSendsNothing) {
  const cost::CostModel cost = cost_with_links(1'000'000);
  plan::PlannerOptions options = codec_options();
  const std::vector<plan::Proposal> proposals = propose(options, cost);
  options.world_size = 1;
  EXPECT_FALSE(choose_codecs(options, cost, proposals).has_value());
}

}  // namespace
}  // namespace sluice::session
