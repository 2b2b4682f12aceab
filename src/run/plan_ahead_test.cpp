#include "run/plan_ahead.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "corpus/temporary_directory.h"
#include "cost/analytic.h"
#include "cost/memory_cost.h"
#include "model/test_outline.h"

namespace sluice::run {
namespace {

std::unique_ptr<PreparedStep> step_numbered(int64_t number) {
  auto step = std::make_unique<PreparedStep>();
  step->plan.step = number;
  return step;
}

TEST(PlanAhead, HandsStepsOutInOrderAndThenNothing) {
  PlanAhead ahead([next = 0]() mutable { return next < 20 ? step_numbered(next++) : nullptr; });
  for (int64_t number = 0; number < 20; ++number) EXPECT_EQ(ahead.next()->plan.step, number);
  EXPECT_EQ(ahead.next(), nullptr);
  EXPECT_EQ(ahead.next(), nullptr);
}

TEST(PlanAhead, ErrorComesWithItsStepAndEndsPlanning) {
  PlanAhead ahead([next = 0]() mutable {
    if (next == 3) throw base::InputError("step 3: no");
    return step_numbered(next++);
  });
  for (int64_t number = 0; number < 3; ++number) EXPECT_EQ(ahead.next()->plan.step, number);
  EXPECT_THROW(ahead.next(), base::InputError);
  EXPECT_EQ(ahead.next(), nullptr);
}

TEST(PlanAhead, EndsWithoutBeingAskedForAllSteps) {
  PlanAhead ahead([] { return step_numbered(0); }, 3);
  ahead.next();
}

// Two ranks whose memory holds about 2,000 tokens each under tp = 1.
cost::CostModel small_cost(const model::Model& model) {
  constexpr int kDegrees[] = {1, 2};
  cost::AnalyticMemory memory;
  memory.logits_chunk_bytes = 1 << 16;
  memory.device_bytes = 8 << 20;
  return cost::CostModel(cost::analytic_options(model, cost::Rates{}, memory, kDegrees, 2));
}

class PrepareStep : public testing::Test {
 protected:
  PrepareStep() {
    corpus::IndexedWriter writer(directory_ / "corpus", {});
    writer.add(std::vector<int32_t>(static_cast<size_t>(document_tokens_), 1));
    writer.commit();
  }

  PreparedStep prepare(int64_t length, int rank = 0) {
    const corpus::Blend blend = corpus::Blend::open({{(directory_ / "corpus").string(), 1.0}});
    plan::PlannerOptions options;
    options.world_size = 2;
    options.candidates = {strategy::parse_strategy("2x<1,1,1>", 2), strategy::parse_strategy("<2,1,1>", 2)};
    options.selection = plan::Selection::kFixed;
    options.fixed_candidate = 0;
    const plan::Planner planner(options, cost_);
    graph::LinkPlans link_plans;
    return prepare_step({planner, table_, 2, rank, &link_plans}, blend, 7, {{0, 0, length}},
                        graph::Purpose::kTrain);
  }
  int64_t longest(const char* scheme) const {
    return cost::MemoryCost(cost_, strategy::parse_strategy(scheme, 2).pipelines[0].scheme).max_len_tokens(2);
  }

  const int64_t document_tokens_ = 100'000;
  corpus::TemporaryDirectory directory_;
  model::ParameterTable table_ = model::parameter_table(model::outline_of_2_heads());
  cost::CostModel cost_ = small_cost(table_.model);
};

TEST_F(PrepareStep, TakesTheSelectedCandidate) {
  EXPECT_EQ(strategy::to_text(prepare(longest("<1,1,1>")).plan.strategy()), "2x<1,1,1>");
}

// A sequence of n tokens has n inputs and n − 1 targets of four bytes each; the other pipeline is idle.
TEST_F(PrepareStep, ReadsThePiecesOfTheRankAndNothingElse) {
  EXPECT_EQ(prepare(1'000, 0).corpus_bytes + prepare(1'000, 1).corpus_bytes, 4 * (1'000 + 999));
  EXPECT_EQ(std::min(prepare(1'000, 0).corpus_bytes, prepare(1'000, 1).corpus_bytes), 0);
}

TEST_F(PrepareStep, SaysWhyItFallsBack) {
  ASSERT_LT(longest("<1,1,1>"), longest("<2,1,1>"));
  EXPECT_EQ(prepare(longest("<1,1,1>")).fallback, "");
  const PreparedStep step = prepare(longest("<1,1,1>") + 1);
  EXPECT_EQ(strategy::to_text(step.plan.strategy()), "1x<2,1,1>");
  EXPECT_NE(step.fallback.find("'2x<1,1,1>' holds"), std::string::npos) << step.fallback;
}

TEST_F(PrepareStep, SaysWhatTheRoomiestHoldsWhenNothingHelps) {
  try {
    prepare(longest("<2,1,1>") + 1);
    FAIL();
  } catch (const base::InfeasibleError& error) {
    EXPECT_NE(std::string(error.what()).find("'1x<2,1,1>' holds"), std::string::npos) << error.what();
  }
}

// Seen by planners with different candidates that pass for one.
TEST_F(PrepareStep, TakesAPlanThatAnEarlierWorkerKept) {
  survive::PlanMemory memory;
  const corpus::Blend blend = corpus::Blend::open({{(directory_ / "corpus").string(), 1.0}});
  const auto strategy_of = [&](const char* candidate, uint64_t planner_hash, int64_t length) {
    plan::PlannerOptions options{.world_size = 2, .candidates = {strategy::parse_strategy(candidate, 2)}};
    const plan::Planner planner(options, cost_);
    const StepInputs inputs{planner, table_, 2, 0, nullptr, &memory, planner_hash};
    return strategy::to_text(
        prepare_step(inputs, blend, 7, {{0, 0, length}}, graph::Purpose::kTrain).plan.strategy());
  };
  EXPECT_EQ(strategy_of("2x<1,1,1>", 1, 1'000), "2x<1,1,1>");
  EXPECT_EQ(strategy_of("<2,1,1>", 1, 1'000), "2x<1,1,1>") << "the kept plan";
  EXPECT_EQ(strategy_of("<2,1,1>", 2, 1'000), "1x<2,1,1>") << "of another planner";
  EXPECT_EQ(strategy_of("<2,1,1>", 1, 1'001), "1x<2,1,1>") << "for other sequences";
}

TEST_F(PrepareStep, PlansAtTheRanksPacesFromTheirStepOn) {
  survive::PlanMemory memory;
  const corpus::Blend blend = corpus::Blend::open({{(directory_ / "corpus").string(), 1.0}});
  plan::PlannerOptions options{.world_size = 2, .candidates = {strategy::parse_strategy("2x<1,1,1>", 2)}};
  const plan::Planner planner(options, cost_);
  StepPlanners paced(planner);
  const StepInputs inputs{planner, table_, 2, 0, nullptr, &memory, 1, &paced};
  std::vector<corpus::Sample> samples;
  for (int64_t i = 0; i < 12; ++i) samples.push_back({0, 100 * i, 100});
  const auto tokens_of = [&](int64_t step, graph::Purpose purpose) {
    const strategy::StepPlan plan = prepare_step(inputs, blend, step, samples, purpose).plan;
    std::vector<int64_t> tokens;
    for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
      tokens.push_back(0);
      for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches)
        tokens.back() += micro_batch.tokens();
    }
    return tokens;
  };
  const std::vector<int64_t> alike{600, 600}, slow_first{400, 800};
  EXPECT_EQ(tokens_of(7, graph::Purpose::kTrain), alike);
  paced.slow_from(9, std::vector<int>{200, 100});
  EXPECT_EQ(paced.at(8), nullptr);
  EXPECT_EQ(tokens_of(8, graph::Purpose::kTrain), alike);
  EXPECT_EQ(tokens_of(9, graph::Purpose::kTrain), slow_first);
  EXPECT_EQ(tokens_of(9, graph::Purpose::kTrain), slow_first) << "kept under its paces";
  EXPECT_EQ(tokens_of(9, graph::Purpose::kEvaluate), alike) << "evaluations keep their plans";
  paced.slow_from(11, std::vector<int>{100, 100});
  EXPECT_EQ(tokens_of(10, graph::Purpose::kTrain), slow_first);
  EXPECT_EQ(tokens_of(11, graph::Purpose::kTrain), alike);
}

TEST_F(PrepareStep, KeptPlanIsThePlannedOneToItsHash) {
  survive::PlanMemory memory;
  const corpus::Blend blend = corpus::Blend::open({{(directory_ / "corpus").string(), 1.0}});
  plan::PlannerOptions options{.world_size = 2, .candidates = {strategy::parse_strategy("<1,1,2>", 2)}};
  const plan::Planner planner(options, cost_);
  const StepInputs inputs{planner, table_, 2, 0, nullptr, &memory, 1};
  const std::vector<corpus::Sample> samples{{0, 0, 1'500}, {0, 2'000, 300}, {0, 3'000, 7}};
  const auto prepared = [&] { return prepare_step(inputs, blend, 7, samples, graph::Purpose::kTrain); };
  const PreparedStep planned = prepared();
  const PreparedStep kept = prepared();
  EXPECT_EQ(kept.agreement, planned.agreement);
  EXPECT_EQ(kept.plan.pipelines, planned.plan.pipelines);
  EXPECT_EQ(kept.plan.sequences, planned.plan.sequences);
  EXPECT_EQ(kept.plan.gap_ppm(), planned.plan.gap_ppm());
}

}  // namespace
}  // namespace sluice::run
