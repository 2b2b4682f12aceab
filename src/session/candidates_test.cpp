#include "session/candidates.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/run_config.h"
#include "cost/exchange.h"
#include "plan/batch_sample.h"
#include "session/planning_inputs.h"
#include "session/step_overhead.h"

namespace sluice::session {
namespace {

PlanningInputs inputs() {
  return resolve_planning({.gpus = 8, .calibration = "a800-7b", .tokens_per_step = 50'000},
                          {100, 200, 300, 1000, 20'000, 700, 5000, 50});
}

plan::PlannerOptions options() { return planner_options(inputs()); }
plan::Planner made(const plan::PlannerOptions& options) { return make_planner(options, inputs().cost()); }
std::vector<plan::Proposal> proposed(const plan::PlannerOptions& options) {
  return propose(options, inputs().cost());
}

std::vector<strategy::Strategy> parsed(const std::vector<std::string>& texts) {
  std::vector<strategy::Strategy> strategies;
  for (const std::string& text : texts) strategies.push_back(strategy::parse_strategy(text, 8));
  return strategies;
}

TEST(Candidates, PlanTheBatchesThatTheyWereProposedBy) {
  plan::PlannerOptions proposing = options();
  proposing.max_strategies = 2;
  const plan::Planner planner = made(proposing);
  EXPECT_LE(planner.options().candidates.size(), 2U);
  EXPECT_EQ(planner.options().candidates, plan::strategies_of(proposed(proposing)));
  for (const std::vector<int64_t>& lengths : proposing.sample_batches) {
    std::vector<strategy::Sequence> sequences;
    for (const int64_t length : lengths) sequences.push_back({.length_tokens = length});
    EXPECT_GT(planner.plan(0, sequences).estimated_ns, 0);
  }
}

TEST(Candidates, TellHowFarProposingIs) {
  plan::PlannerOptions observed = options(), unobserved = options();
  observed.max_strategies = unobserved.max_strategies = 2;
  std::vector<std::string> told;
  observed.progress = told_in_words([&](const std::string& how_far) { told.push_back(how_far); });
  EXPECT_EQ(plan::strategies_of(proposed(observed)), plan::strategies_of(proposed(unobserved)));
  ASSERT_GE(told.size(), 2U);
  EXPECT_TRUE(told.front().starts_with("1 strategy compared in ")) << told.front();
  EXPECT_NE(told.back(), told.front());
  EXPECT_TRUE(told.back().ends_with(" planned steps")) << told.back();
}

TEST(Candidates, HaveLanesOnlyWhereTheMethodKnowsThem) {
  plan::PlannerOptions given = options();
  given.method = plan::plain();
  given.max_cp = 2;
  EXPECT_THROW(proposed(given), base::InputError);
  given.candidates = parsed({"<8,1,1>", "2x<2,1,2>"});
  given.method = plan::plain();
  EXPECT_THROW(made(given), base::InputError);
  given.method = plan::ours();
  EXPECT_NO_THROW(made(given));
}

TEST(Candidates, ExchangeHeadsAloneOnlyOnAsManyLanesAsThereAreHeads) {
  plan::PlannerOptions given = options();
  given.world_size = 64;
  given.exchanges = cost::exchange_set(strategy::ExchangeRule::kHeads);
  const auto fault = [&](const char* text) -> std::string {
    given.candidates = {strategy::parse_strategy(text, 64)};
    try {
      made(given);
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(fault("2x<1,1,32>"), "");
  EXPECT_EQ(
      fault("<1,1,64>"),
      "strategy '1x<1,1,64>': its 64 lanes can't all exchange heads, because of the model's 32 a TP rank "
      "has 32: lower cp to 32 or less, or exchange nested, in a ring or by auto");
  EXPECT_NE(fault("<8,1,8,8>").find("a TP rank has 4: lower cp to 4"), std::string::npos);
  given.exchanges = cost::exchange_set(strategy::ExchangeRule::kNested);
  EXPECT_EQ(fault("<8,1,8,8>"), "");
}

bool is_feasible(const plan::PlannerOptions& options) {
  try {
    return !proposed(options).empty();
  } catch (const base::InfeasibleError&) {
    return false;
  }
}

TEST(Candidates, AreProposedUnderTheFirstMemoryPolicyThatHoldsTheContext) {
  plan::PlannerOptions keeping = options();
  keeping.policies = {{}};
  keeping.saves = {};
  while (is_feasible(keeping)) keeping.context_length *= 2;
  plan::PlannerOptions saving = keeping;
  saving.policies.push_back({.recompute_permille = 1000});
  const plan::Planner planner = made(saving);
  EXPECT_GE(planner.max_len_tokens(), saving.context_length);
  EXPECT_EQ(planner.options().policies, saving.policies);
}

TEST(Candidates, OffloadWhatIsHiddenWhereThatSavesLanes) {
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < 400; ++i) lengths.push_back(300 + i * i % 3000 + (i % 40 == 0 ? 12'000 : 0));
  const PlanningInputs given = resolve_planning(
      {.gpus = 8, .cluster = "h100x8", .model = "llama-13b", .tokens_per_step = 200'000}, lengths);
  const auto policy = [&](const plan::PlannerOptions& options) {
    return make_planner(options, given.cost()).cost().policy();
  };
  plan::PlannerOptions choices = planner_options(given);
  choices.policies = {{}, {.recompute_permille = 1000}};
  EXPECT_TRUE(policy(choices).keeps_all()) << "a CPU's memory is the host's";
  choices.offload_saves_lanes = true;
  EXPECT_GT(policy(choices).offload_permille, 0);
  choices.saves.offload = false;
  EXPECT_TRUE(policy(choices).keeps_all()) << "the user said how much is offloaded";
}

TEST(Candidates, ComparedPlannersAreMadePlannersWithTheirSteps) {
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < 400; ++i) lengths.push_back(300 + i * i % 3000 + (i % 40 == 0 ? 12'000 : 0));
  const PlanningInputs given = resolve_planning(
      {.gpus = 8, .cluster = "h100x8", .model = "llama-13b", .tokens_per_step = 200'000}, lengths);
  plan::PlannerOptions options = planner_options(given);
  options.candidates = {strategy::parse_strategy("1x<1,1,8,8>", 8)};
  options.policies = {{}, {.recompute_permille = 1000}};
  EXPECT_FALSE(make_compared_planner(options, given.cost()).steps_ns) << "nothing was compared";
  options.offload_saves_lanes = true;
  const ComparedPlanner compared = make_compared_planner(options, given.cost());
  EXPECT_EQ(compared.planner.options().policies, make_planner(options, given.cost()).options().policies);
  const ClockedStepOverhead beside(compared.planner.cost());
  int64_t sum_ns = 0;
  const std::vector<size_t> batches = compared_batches(options);
  ASSERT_EQ(compared.steps.size(), batches.size());
  for (size_t i = 0; i < batches.size(); ++i) {
    const ClockedStep& step = compared.steps[i];
    EXPECT_EQ(step.batch, batches[i]);
    const std::vector<int64_t>& lengths = options.sample_batches[batches[i]];
    EXPECT_EQ(step.planned_ns, compared.planner.plan(0, plan::sequences_of(lengths)).estimated_ns);
    EXPECT_EQ(step.step_ns, clocked_step_ns(compared.planner, lengths, beside).value());
    sum_ns += step.step_ns;
  }
  EXPECT_EQ(compared.steps_ns, sum_ns);
}

TEST(Candidates, ComparedPlannersAreMadeOnceForAStrategy) {
  const PlanningInputs given = resolve_planning(
      {.gpus = 8, .cluster = "h100x8", .model = "llama-13b", .tokens_per_step = 20'000}, {4000, 300});
  const plan::PlannerOptions options = planner_options(given);
  const strategy::Strategy lanes = strategy::parse_strategy("1x<1,1,8,8>", 8);
  ComparedPlanners planners;
  const ComparedPlanner& first = planners.of(lanes, options, given.cost());
  EXPECT_EQ(first.planner.options().candidates, std::vector<strategy::Strategy>{lanes});
  const ComparedPlanner& other = planners.of(strategy::parse_strategy("4x<2,1,1>", 8), options, given.cost());
  EXPECT_NE(&other, &first);
  EXPECT_EQ(&planners.of(lanes, options, given.cost()), &first);
}

TEST(Candidates, RecomputeWhereShorterSequencesWouldWaitForCopies) {
  constexpr int64_t kContext = 65'536;
  const std::vector<int64_t> middling = {46'436, 29'181, 5868, 5752, 5469, 5467, 4423, 3629, 3394,
                                         3370,   2835,   1866, 1560, 1414, 1108, 984,  824,  611};
  std::vector<int32_t> lengths(middling.begin(), middling.end());
  lengths.push_back(kContext);
  const PlanningInputs given = resolve_planning(
      {.gpus = 8, .calibration = "a800-13b", .context_length = kContext, .tokens_per_step = 2 * kContext},
      lengths);
  plan::PlannerOptions options = planner_options(given);
  options.candidates = {strategy::parse_strategy("1x<1,1,8,8>", 8)};
  const plan::Planner planner = make_planner(options, given.cost());
  const std::vector<strategy::MemoryPolicy>& policies = planner.options().policies;
  ASSERT_GE(policies.size(), 3U);
  EXPECT_GT(policies[1].offload_permille, 0) << "a sequence of the context's length hides copies";
  EXPECT_EQ(policies[2].offload_permille, 0);
  const ClockedStepOverhead beside(planner.cost());
  const auto step_ns = [&](const plan::Planner& of) { return clocked_step_ns(of, middling, beside).value(); };
  const double planned_ns = step_ns(planner);
  for (size_t further = 1; further < policies.size(); ++further) {
    plan::PlannerOptions alone = planner.options();
    alone.policies = {policies.front(), policies[further]};
    const double alone_ns = step_ns(plan::Planner(alone, planner.cost()));
    EXPECT_LE(planned_ns, (further == 1 ? 0.95 : 1.0) * alone_ns) << to_text(policies[further]);
  }
}

TEST(Candidates, HoldALongContextByBothSavings) {
  constexpr int32_t kMillion = 1 << 20;
  const PlanningInputs inputs =
      resolve_planning({.gpus = 8, .cluster = "a800x8", .model = "llama-7b", .tokens_per_step = kMillion},
                       {kMillion, 2000, 3000});
  const plan::Planner planner = make_planner(planner_options(inputs), inputs.cost());
  EXPECT_GE(planner.max_len_tokens(), kMillion);
  ASSERT_GE(planner.options().policies.size(), 2u);
  EXPECT_TRUE(planner.cost().policy().keeps_all()) << "short batches keep everything";
  const auto memory_of = [&](int64_t tokens) {
    const strategy::StepPlan plan = planner.plan(0, plan::sequences_of(std::vector<int64_t>{tokens}));
    for (const strategy::PipelinePlan& pipeline : plan.pipelines)
      if (!pipeline.micro_batches.empty()) return pipeline.micro_batches.front().memory;
    return strategy::MemoryPolicy{};
  };
  EXPECT_FALSE(memory_of(kMillion).keeps_all());
  EXPECT_TRUE(memory_of(3000).keeps_all());
  plan::PlannerOptions keeping = planner_options(inputs);
  keeping.saves = {};
  try {
    make_planner(keeping, inputs.cost());
    ADD_FAILURE() << "all kept";
  } catch (const base::InfeasibleError& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("holds context_length 1048576"), std::string::npos) << said;
    EXPECT_NE(said.find("holds it with memory."), std::string::npos) << said;
  }
  keeping.candidates = parsed({"8x<1,1,1>"});
  const plan::Planner narrow = make_planner(keeping, inputs.cost());
  EXPECT_THROW(require_context(narrow, kMillion), base::InfeasibleError);
}

TEST(Candidates, RefusesCountsUnderOneAndChoicesThatAreNotThere) {
  plan::PlannerOptions none = options();
  none.max_strategies = 0;
  EXPECT_THROW(proposed(none), base::InputError);
  plan::PlannerOptions negative = options();
  negative.max_cp = -1;
  EXPECT_THROW(proposed(negative), base::InputError);
  plan::PlannerOptions given = options();
  given.selection = plan::Selection::kFixed;
  given.fixed_candidate = 1;
  given.candidates = parsed({"<8,1,1>"});
  EXPECT_THROW(made(given), base::InputError);
  plan::PlannerOptions nothing = options();
  nothing.sample_batches.clear();
  EXPECT_THROW(made(nothing), base::InputError);
}

TEST(Candidates, ContextThatNoneHoldsIsRefused) {
  plan::PlannerOptions given = options();
  given.candidates = parsed({"<8,1,1>"});
  const plan::Planner planner = made(given);
  EXPECT_NO_THROW(require_context(planner, planner.max_len_tokens()));
  EXPECT_THROW(require_context(planner, planner.max_len_tokens() + 1), base::InfeasibleError);
}

}  // namespace
}  // namespace sluice::session
