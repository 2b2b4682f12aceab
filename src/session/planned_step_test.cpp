#include "session/planned_step.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "cost/analytic.h"
#include "model/test_outline.h"

namespace sluice::session {
namespace {

constexpr int kWorld = 2;

// Two ranks, each with room for a few thousand tokens.
cost::CostModel small_cost() {
  const model::Outline outline = model::outline_of_2_heads();
  constexpr int kDegrees[] = {1, 2};
  const cost::AnalyticMemory memory{.device_bytes = 8 << 20, .logits_chunk_bytes = 1 << 16};
  return cost::CostModel(cost::analytic_options(outline, cost::Rates{}, memory, kDegrees, kWorld));
}

plan::PlannerOptions options_of(const std::vector<std::string>& texts) {
  plan::PlannerOptions options{.world_size = kWorld};
  for (const std::string& text : texts) options.candidates.push_back(strategy::parse_strategy(text, kWorld));
  return options;
}

BuiltStep built(const plan::PlannerOptions& options, const std::vector<int64_t>& lengths) {
  std::vector<strategy::Sequence> sequences;
  for (const int64_t length : lengths) sequences.push_back({.document = 9, .length_tokens = length});
  const cost::CostModel cost = small_cost();
  return build_step(plan::Planner(options, cost), model::parameter_table(cost.options().model), 4, sequences,
                    {});
}

int64_t longest(const std::string& strategy) {
  return plan::Planner(options_of({strategy}), small_cost()).max_len_tokens();
}

plan::PlannerOptions fixed_to_the_first(const std::vector<std::string>& texts) {
  plan::PlannerOptions options = options_of(texts);
  options.selection = plan::Selection::kFixed;
  return options;
}

TEST(PlannedStep, IsThePlannersWhereItPlans) {
  const BuiltStep step = built(fixed_to_the_first({"2x<1,1,1>", "<1,1,2>"}), {longest("2x<1,1,1>"), 10});
  EXPECT_EQ(to_text(step.plan.strategy()), "2x<1,1,1>");
  EXPECT_EQ(step.fallback, "");
  EXPECT_EQ(step.plan.step, 4);
  EXPECT_GT(step.graph.makespan_ns, 0);
}

TEST(PlannedStep, FallsBackToCandidatesWithLanes) {
  const BuiltStep step = built(fixed_to_the_first({"2x<1,1,1>", "<1,1,2>"}), {longest("2x<1,1,1>") + 1, 10});
  EXPECT_EQ(to_text(step.plan.strategy()), "1x<1,1,2>");
  EXPECT_NE(step.fallback.find("'2x<1,1,1>' holds"), std::string::npos) << step.fallback;
}

TEST(PlannedStep, TakesTheBestOfAllCandidatesAndNotTheRoomiest) {
  const std::vector<int64_t> lengths = {longest("2x<1,1,1>") + 1, 100};
  const BuiltStep best = built(options_of({"2x<1,1,1>", "<1,1,2>", "<1,2,1>", "<2,1,1>"}), lengths);
  const BuiltStep step = built(fixed_to_the_first({"2x<1,1,1>", "<1,1,2>", "<1,2,1>", "<2,1,1>"}), lengths);
  EXPECT_EQ(step.plan.pipelines, best.plan.pipelines);
}

// A plan without a graph, by lack of memory or by a mistake, leads to a fallback and not to an error.
using Refusal = std::optional<base::Infeasible> (*)(const std::string& why);

std::optional<base::Infeasible> by_memory(const std::string& why) { return base::Infeasible{why}; }
template <typename Error>
std::optional<base::Infeasible> throwing(const std::string& why) {
  throw Error(why);
}

base::Feasible<PlannedStep> refusing(Refusal refuse, const std::string& refused,
                                     const std::vector<std::string>& candidates) {
  const plan::Planner planner(options_of(candidates), small_cost());
  const auto accept = [&](const strategy::StepPlan& plan) -> std::optional<base::Infeasible> {
    if (!refused.empty() && to_text(plan.strategy()) != refused) return std::nullopt;
    return refuse("refused " + refused);
  };
  return plan_step(planner, 0, {{.length_tokens = 100}}, accept);
}

TEST(PlannedStep, TriesEveryCandidateAlone) {
  const plan::Planner both(options_of({"2x<1,1,1>", "<2,1,1>"}), small_cost());
  const std::string best = to_text(both.plan(0, {{.length_tokens = 100}}).strategy());
  const std::string other = best == "1x<2,1,1>" ? "2x<1,1,1>" : "1x<2,1,1>";
  for (const Refusal refuse : {throwing<base::AssertionError>, by_memory}) {
    const auto planned = refusing(refuse, best, {"2x<1,1,1>", "<2,1,1>"});
    ASSERT_TRUE(planned);
    EXPECT_EQ(to_text(planned->plan.strategy()), other);
    EXPECT_EQ(planned->fallback, "refused " + best);
  }
}

TEST(PlannedStep, SaysWhatThePlannerFailedOfWhenNothingHelps) {
  EXPECT_THROW(refusing(throwing<base::AssertionError>, "", {"2x<1,1,1>", "<1,1,2>"}), base::AssertionError);
  EXPECT_THROW(refusing(throwing<base::InputError>, "", {"2x<1,1,1>"}), base::InputError);
  const auto none = refusing(by_memory, "", {"2x<1,1,1>", "<1,1,2>"});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.none().why, "refused ");
}

TEST(PlannedStep, SaysWhatTheRoomiestHoldsWhenNoneHoldsTheBatch) {
  try {
    built(fixed_to_the_first({"2x<1,1,1>", "<2,1,1>"}), {longest("<2,1,1>") + 100});
    FAIL();
  } catch (const base::InfeasibleError& error) {
    EXPECT_NE(std::string(error.what()).find("'1x<2,1,1>' holds"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("the most of all strategies"), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice::session
