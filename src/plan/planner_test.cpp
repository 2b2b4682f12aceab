#include "plan/planner.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "cost/memory_cost.h"
#include "plan/batch_sample.h"
#include "plan/test_models.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::plan {
namespace {

using strategy::Sequence;
using strategy::StepPlan;

constexpr int kWorldSize = 4;

PlannerOptions options_of(const std::vector<std::string>& texts) {
  PlannerOptions options{.world_size = kWorldSize};
  for (const std::string& text : texts)
    options.candidates.push_back(strategy::parse_strategy(text, kWorldSize));
  return options;
}

std::vector<Sequence> random_sequences(uint64_t seed, int64_t longest) {
  base::Rng rng(seed, 11);
  std::vector<int64_t> lengths;
  for (int64_t i = rng.between(1, 50); i > 0; --i)
    lengths.push_back(rng.between(2, rng.below(8) == 0 ? longest : 400));
  return sequences_of(lengths);
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const base::Error& error) {
    return base::text(error.exit_status(), " ", error.what());
  }
  return "no error";
}

TEST(Planner, PlansAreValidAndScoredByTheirSchedule) {
  const Planner planner(
      options_of({"4x<1,1,1>", "<2,1,1> + 2x<1,1,1>", "<1,2,1> + <2,1,1>", "<1,4,1>", "<2,2,1>"}),
      test_cost());
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const StepPlan plan = planner.plan(static_cast<int64_t>(seed), random_sequences(seed, 2000));
    ASSERT_NO_THROW(strategy::validate(plan, kWorldSize)) << "seed " << seed;
    int64_t longest_ns = 0;
    for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
      const schedule::PipelineLoad load = schedule::pipeline_load(pipeline, planner.cost(), kWorldSize);
      longest_ns = std::max(longest_ns, schedule::schedule_pipeline(load).makespan_ns);
    }
    EXPECT_EQ(plan.estimated_ns, longest_ns);
    ASSERT_EQ(plan.candidates.size(), 5u);
    for (const strategy::CandidateEstimate& candidate : plan.candidates) {
      EXPECT_LE(plan.estimated_ns, candidate.estimated_ns);
    }
  }
}

// Placed by their lengths, timed by what they attend to.
TEST(Planner, SequencesWithBranchesAreTimedForWhatTheyAttendTo) {
  const Planner planner(options_of({"4x<1,1,1>", "<2,1,1> + 2x<1,1,1>", "<1,4,1>", "<1,1,4>", "<1,2,2>"}),
                        test_cost());
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<Sequence> sequences = random_sequences(seed, 2000);
    base::Rng rng(seed, 12);
    const StepPlan whole = planner.plan(static_cast<int64_t>(seed), sequences);
    for (Sequence& sequence : sequences) {
      int64_t left = sequence.length_tokens - rng.between(1, sequence.length_tokens);
      while (left > 0 && rng.below(8) > 0) {
        sequence.branches.push_back(rng.between(1, left));
        left -= sequence.branches.back();
      }
    }
    const StepPlan plan = planner.plan(static_cast<int64_t>(seed), sequences);
    ASSERT_NO_THROW(strategy::validate(plan, kWorldSize)) << "seed " << seed;
    EXPECT_EQ(plan.sequences, sequences);
    int64_t longest_ns = 0;
    for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
      const schedule::PipelineLoad load = schedule::pipeline_load(pipeline, planner.cost(), kWorldSize);
      longest_ns = std::max(longest_ns, schedule::schedule_pipeline(load).makespan_ns);
    }
    EXPECT_EQ(plan.estimated_ns, longest_ns);
    const bool some = std::ranges::any_of(sequences, [](const Sequence& s) { return !s.branches.empty(); });
    EXPECT_EQ(plan.lower_bound_ns > 0, !some);
    EXPECT_LE(plan.estimated_ns, whole.estimated_ns * 105 / 100);
  }
}

TEST(Planner, SameInputsGiveTheSameBytes) {
  const std::vector<std::string> texts = {"4x<1,1,1>", "<1,2,1> + <2,1,1>"};
  const Planner one(options_of(texts), test_cost());
  const Planner two(options_of(texts), test_cost());
  const std::vector<Sequence> sequences = random_sequences(5, 1500);
  EXPECT_EQ(strategy::canonical_bytes(one.plan(3, sequences)),
            strategy::canonical_bytes(two.plan(3, sequences)));
}

TEST(Planner, CycleTakesTurnsAndSkipsWhatDoesNotHoldTheBatch) {
  PlannerOptions options = options_of({"4x<1,1,1>", "<2,2,1>", "2x<2,1,1>"});
  options.selection = Selection::kCycle;
  const Planner planner(options, test_cost());
  const std::vector<Sequence> shorts = sequences_of({100, 200, 300});
  for (int64_t step = 0; step < 6; ++step) {
    EXPECT_EQ(planner.plan(step, shorts).strategy(), options.candidates[static_cast<size_t>(step % 3)]);
  }
  const int64_t single = cost::MemoryCost(planner.cost(), {}).max_len_tokens(kWorldSize);
  EXPECT_EQ(planner.plan(0, sequences_of({single + 1})).strategy(), options.candidates[1]);
}

TEST(Planner, FixedNeverLeavesItsCandidate) {
  PlannerOptions options = options_of({"4x<1,1,1>", "<2,2,1>"});
  options.selection = Selection::kFixed;
  const Planner planner(options, test_cost());
  const int64_t single = cost::MemoryCost(planner.cost(), {}).max_len_tokens(kWorldSize);
  EXPECT_EQ(planner.plan(1, sequences_of({100})).strategy(), options.candidates[0]);
  EXPECT_THROW(planner.plan(1, sequences_of({single + 1})), base::InfeasibleError);
}

TEST(Planner, InfeasibleNamesTheSequenceAndWhatIsHeld) {
  const Planner planner(options_of({"4x<1,1,1>", "2x<2,1,1>"}), test_cost());
  const int64_t most = planner.max_len_tokens();
  EXPECT_EQ(most, cost::MemoryCost(planner.cost(), {.tp = 2}).max_len_tokens(kWorldSize));
  const std::string message = message_of([&] { planner.plan(7, sequences_of({5, most + 1})); });
  EXPECT_EQ(message.front(), '3') << message;
  for (const std::string& part :
       {base::text("document 1 has a sequence of ", base::human_count(most + 1)),
        base::text("'2x<2,1,1>' holds ", base::human_count(most)), std::string("the most of all strategies"),
        std::string("lower the context length")}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(Planner, CandidatesThatCannotRunAreNamed) {
  const auto message = [](const std::string& text) {
    return message_of([&] { Planner(options_of({text}), test_cost(128'000'000, 3)); });
  };
  EXPECT_EQ(message("<1,4,1>"),
            "2 strategy '1x<1,4,1>': <1,4,1>: 4 stages but the model has 3 layers: lower pp");
  EXPECT_EQ(message("<3,1,1>"),
            "2 strategy '1x<3,1,1>': <3,1,1>: tp 3 does not divide 4 heads: choose one of 1, 2, 4");
  EXPECT_EQ(message_of([] { Planner({.world_size = 1}, test_cost()); }).front(), '2');
  PlannerOptions options = options_of({"<1,1,1>"});
  options.selection = Selection::kFixed;
  options.fixed_candidate = 1;
  EXPECT_EQ(message_of([&] { Planner(options, test_cost()); }).front(), '2');
}

TEST(Planner, MorePipelinesThanSequencesLeaveSomeEmpty) {
  const Planner planner(options_of({"4x<1,1,1>"}), test_cost());
  const StepPlan plan = planner.plan(0, sequences_of({50}));
  EXPECT_NO_THROW(strategy::validate(plan, kWorldSize));
  int empty = 0;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines)
    empty += pipeline.micro_batches.empty() ? 1 : 0;
  EXPECT_EQ(empty, 3);
}

TEST(Planner, EqualSequencesSpreadEvenly) {
  const Planner planner(options_of({"4x<1,1,1>"}), test_cost());
  const StepPlan plan = planner.plan(0, sequences_of(std::vector<int64_t>(12, 300)));
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    int64_t tokens = 0;
    for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches)
      tokens += micro_batch.tokens();
    EXPECT_EQ(tokens, 900);
  }
}

TEST(Planner, RecomputesWhereTheLongestSequenceNeedsIt) {
  PlannerOptions options = options_of({"<1,2,1> + 2x<1,1,1>"});
  const int64_t held = Planner(options, test_cost()).max_len_tokens();
  options.policies = {{}, {.recompute_permille = 1000}};
  const Planner planner(options, test_cost());
  ASSERT_GT(planner.max_len_tokens(), held);
  const StepPlan kept = planner.plan(0, sequences_of({held, 100, 200, 300}));
  for (const auto& pipeline : kept.pipelines) {
    for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches)
      EXPECT_TRUE(micro_batch.memory.keeps_all());
  }
  const StepPlan plan = planner.plan(1, sequences_of({held + 1, 100, 200, 300, 250, 120}));
  ASSERT_NO_THROW(strategy::validate(plan, kWorldSize));
  int64_t end_ns = 0;
  for (const auto& pipeline : plan.pipelines) {
    for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
      EXPECT_EQ(micro_batch.memory.recomputes(), micro_batch.tokens() > held);
    }
    const auto load = schedule::pipeline_load(pipeline, planner.cost(), kWorldSize);
    end_ns = std::max(end_ns, schedule::schedule_pipeline(load).makespan_ns);
  }
  EXPECT_EQ(plan.estimated_ns, end_ns);
  EXPECT_THROW(planner.plan(2, sequences_of({planner.max_len_tokens() + 1})), base::InfeasibleError);
}

// Without a search: timed by the schedule all the same, whatever the policy, and no better than ours.
TEST(Planner, APlainMethodServesWhereNothingElseDoes) {
  PlannerOptions options = options_of({"<1,2,1> + 2x<1,1,1>"});
  const int64_t held = Planner(options, test_cost()).max_len_tokens();
  options.policies = {{}, {.recompute_permille = 1000}};
  const Planner ours(options, test_cost());
  options.method = plain();
  const Planner planner(options, test_cost());
  for (const int64_t longest : {held, held + 1}) {
    const std::vector<strategy::Sequence> sequences = sequences_of({100, longest, 200, 300, 250, 120});
    const StepPlan plan = planner.plan(1, sequences);
    ASSERT_NO_THROW(strategy::validate(plan, kWorldSize));
    int64_t end_ns = 0;
    for (const auto& pipeline : plan.pipelines) {
      const auto load = schedule::pipeline_load(pipeline, planner.cost(), kWorldSize);
      end_ns = std::max(end_ns, schedule::schedule_pipeline(load).makespan_ns);
    }
    if (longest == held) {
      EXPECT_EQ(plan.estimated_ns, end_ns);
    }
    EXPECT_GE(end_ns, ours.plan(1, sequences).estimated_ns);
  }
  EXPECT_FALSE(planner.try_plan(2, sequences_of({planner.max_len_tokens() + 1})));
}

}  // namespace
}  // namespace sluice::plan
