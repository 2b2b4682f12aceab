#include "report/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "model/test_outline.h"

namespace sluice::report {
namespace {

Explanation example() {
  Explanation explanation{.step = 7,
                          .sequences = 812,
                          .tokens = 199'604,
                          .median_tokens = 98,
                          .longest_tokens = 32'768,
                          .strategy = "1x<8,2,1> + 12x<4,1,1>",
                          .schedule_ns = 1'234'000'000,
                          .estimated_ns = 1'234'000'000,
                          .lower_bound_ns = 1'231'000'000,
                          .gap_ppm = 2437,
                          .bounded_by = strategy::Proof::kPath};
  explanation.candidates = {{"1x<8,2,1> + 12x<4,1,1>", 65'536, 1'234'000'000, 1'231'000'000},
                            {"4x<8,2,1>", 65'536, 1'290'000'000, 1'280'000'000},
                            {"16x<4,1,1>", 12'000, std::nullopt, 0}};
  explanation.pipelines = {{.scheme = "<8,2,1>",
                            .first_rank = 0,
                            .last_rank = 15,
                            .end_ns = 1'234'000'000,
                            .stages = 2,
                            .busiest_stage = 1,
                            .busy_ns = 1'110'600'000,
                            .sequences = 5,
                            .tokens = 60'000,
                            .lane_parts = 4,
                            .longest_tokens = 32'768,
                            .longest_path_ns = 800'000'000},
                           {.scheme = "<4,1,1>",
                            .first_rank = 60,
                            .last_rank = 63,
                            .end_ns = 1'172'300'000,
                            .busy_ns = 1'172'300'000,
                            .sequences = 60,
                            .tokens = 11'000,
                            .lane_parts = 1,
                            .longest_tokens = 900,
                            .longest_path_ns = 100'000'000}};
  return explanation;
}

// The output of --explain: the batch; the choice and its rival; all candidates; the pipeline that ends last
// and what keeps it busy; the bound and its proof.
constexpr const char* kExpected =
    R"(Step 7 has 812 sequences of 199,604 tokens in all; the longest has 32,768, half of them at most 98.

The plan takes 1x<8,2,1> + 12x<4,1,1>, estimated at 1.23 s: the least of 3 candidates. The next best, 4x<8,2,1>, would take 1.29 s: 4.54 % longer. It is proved that it takes 1.28 s at least.

  estimated    more  at least  max sequence length  strategy
     1.23 s            1.23 s               65,536  1x<8,2,1> + 12x<4,1,1>  (taken)
     1.29 s  4.54 %    1.28 s               65,536  4x<8,2,1>
  too short                                 12,000  16x<4,1,1>

Last to end, at 1.23 s, is the pipeline <8,2,1> on ranks 0-15 with 5 sequences of 60,000 tokens in 4 micro-batches. Stage 1 of 2 computes for 90.0 % of that time and waits for the rest (filling and draining); its longest sequence, 32,768 tokens, needs 800.00 ms of it to pass all stages and back. First to end, at 1.17 s (5.00 % earlier), is <4,1,1> on ranks 60-63.

No schedule of these candidates takes less than 1.23 s, so this one, of 1.23 s, is within 0.24 % of the best. Its longest sequence bounds it: 32,768 tokens pass all stages of some pipeline and back in no less, whatever runs beside them. Pipelines with more ranks would shorten that.
)";

TEST(Explain, TextIsForPeople) { EXPECT_EQ(explanation_text(example()), kExpected); }

TEST(Explain, SaysWhyUnitsHaveTheirLanesAndTheirExchange) {
  Explanation explanation = example();
  explanation.cuts = {{.longest_tokens = 32'768,
                       .sequences = 1,
                       .lanes = 16,
                       .exchange = "nested 8",
                       .busy_ns = 900'000'000,
                       .fewer_ns = 950'000'000,
                       .ring_ns = 400'000'000,
                       .heads_ns = 60'000'000,
                       .nested_ns = 20'000'000}};
  EXPECT_THAT(explanation_text(explanation),
              testing::HasSubstr("  longest  sequences  lanes  exchange      takes  one fewer  one more      "
                                 " ring     heads    nested\n"
                                 "   32,768          1     16  nested 8  900.00 ms  950.00 ms         -  "
                                 "400.00 ms  60.00 ms  20.00 ms"));
}

class ExplainCuts : public testing::TestWithParam<const char*> {};

TEST_P(ExplainCuts, AreThePlans) {
  const std::vector<int> degrees = {1};
  plan::PlannerOptions options{.world_size = 8, .candidates = {strategy::parse_strategy(GetParam(), 8)}};
  const cost::CostModel cost(
      cost::analytic_options(model::test_outline(), {}, {.device_bytes = 128'000'000}, degrees, 4));
  const plan::Planner planner(options, cost);
  const strategy::StepPlan plan =
      planner.plan(0, {{.document = 0, .length_tokens = 20'000}, {.document = 1, .length_tokens = 900}});
  const Explanation explanation = explain(plan, planner);
  ASSERT_FALSE(explanation.cuts.empty());
  for (const ExplainedCut& cut : explanation.cuts) {
    // On all lanes there are no more, and memory asks for some.
    EXPECT_EQ(cut.more_ns.has_value(), cut.lanes < 8);
    EXPECT_GT(cut.fewer_ns.value_or(1), 0);
    ASSERT_TRUE(cut.ring_ns);
    const bool nested = cut.exchange.starts_with("nested");
    const std::optional<int64_t> chosen_ns = nested                    ? cut.nested_ns
                                             : cut.exchange == "heads" ? cut.heads_ns
                                                                       : cut.ring_ns;
    ASSERT_TRUE(chosen_ns);
    EXPECT_LE(*chosen_ns, *cut.ring_ns);
    EXPECT_LE(*chosen_ns, cut.heads_ns.value_or(*chosen_ns));
    EXPECT_LE(*chosen_ns, cut.busy_ns);
  }
}

// Lanes that share parameters are explained by the times of their passes, gathers included.
INSTANTIATE_TEST_SUITE_P(Shares, ExplainCuts,
                         testing::Values("<1,1,8>", "<1,1,8,2>", "<1,1,8,4>", "<1,1,8,8>"),
                         [](const auto& at) { return "S" + std::to_string(at.index); });

TEST(Explain, SharedLanesTakeWhatTheirPassGathers) {
  const std::vector<int> degrees = {1};
  const cost::CostModel cost(
      cost::analytic_options(model::test_outline(), {}, {.device_bytes = 128'000'000}, degrees, 4));
  const auto longest_cut = [&](const char* text) {
    const plan::Planner planner({.world_size = 8, .candidates = {strategy::parse_strategy(text, 8)}}, cost);
    strategy::StepPlan plan = planner.plan(0, {{.document = 0, .length_tokens = 20'000}});
    return explain(plan, planner).cuts.front();
  };
  const ExplainedCut own = longest_cut("<1,1,8>"), shared = longest_cut("<1,1,8,8>");
  ASSERT_EQ(own.lanes, shared.lanes);
  EXPECT_GT(shared.busy_ns, own.busy_ns);
}

TEST(Explain, SaysWhatIsNotKnown) {
  Explanation explanation = example();
  explanation.lower_bound_ns = 0;
  explanation.candidates.resize(1);
  const std::string told = explanation_text(explanation);
  EXPECT_THAT(told, testing::HasSubstr("it is the only candidate."));
  EXPECT_THAT(told, testing::HasSubstr("This method proves no lower bound."));
}

TEST(Explain, SaysThatSequencesBranch) {
  Explanation explanation = example();
  explanation.lower_bound_ns = 0;
  explanation.branches = 128;
  const std::string told = explanation_text(explanation);
  EXPECT_THAT(told, testing::HasSubstr("behind prefixes that they share lie 128 branches."));
  EXPECT_THAT(told, testing::HasSubstr("Of sequences with branches no lower bound is proved."));
}

TEST(Explain, EveryProofHasItsWords) {
  using plan::Proof;
  for (const Proof proof : {Proof::kPath, Proof::kPrices, Proof::kPigeonhole, Proof::kRings}) {
    Explanation explanation = example();
    explanation.bounded_by = proof;
    EXPECT_THAT(explanation_text(explanation), testing::HasSubstr("would"));
    EXPECT_THAT(explanation_text(explanation), testing::Not(testing::HasSubstr("What proves it: ")));
  }
}

TEST(Explain, NumbersAreThePlans) {
  const std::vector<int> degrees = {1, 2, 4};
  constexpr int kRanks = 4;
  plan::PlannerOptions options{.world_size = kRanks};
  for (const char* text : {"4x<1,1,1>", "<2,1,1> + 2x<1,1,1>", "<1,2,1> + 2x<1,1,1>", "<4,1,1>"})
    options.candidates.push_back(strategy::parse_strategy(text, kRanks));
  const plan::Planner planner(
      options, cost::CostModel(cost::analytic_options(model::test_outline(), {},
                                                      {.device_bytes = 128'000'000}, degrees, 8)));
  std::vector<strategy::Sequence> sequences;
  for (const int64_t length : {2000, 900, 700, 500, 400, 300, 200, 100, 50, 40, 30, 20})
    sequences.push_back({.document = length, .length_tokens = length});
  const strategy::StepPlan plan = planner.plan(3, sequences);
  const Explanation explanation = explain(plan, planner);

  EXPECT_EQ(explanation.longest_tokens, 2000);
  EXPECT_EQ(explanation.median_tokens, 200);
  EXPECT_EQ(explanation.candidates.size(), 4);
  EXPECT_EQ(explanation.pipelines.size(), plan.pipelines.size());
  EXPECT_EQ(explanation.pipelines.front().end_ns, plan.estimated_ns);
  int64_t told_sequences = 0;
  int64_t told_tokens = 0;
  for (const ExplainedPipeline& pipeline : explanation.pipelines) {
    told_sequences += pipeline.sequences;
    told_tokens += pipeline.tokens;
    EXPECT_LE(pipeline.busy_ns, pipeline.end_ns);
    EXPECT_LE(pipeline.longest_path_ns, pipeline.end_ns);
  }
  EXPECT_EQ(told_sequences, explanation.sequences);
  EXPECT_EQ(told_tokens, plan.tokens());
}

}  // namespace
}  // namespace sluice::report
