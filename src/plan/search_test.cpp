#include "plan/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "cost/memory_cost.h"
#include "plan/planner.h"
#include "plan/test_models.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::plan {
namespace {

constexpr int kWorld = 4;
using base::kNever;

// The best of all packings of all subsets of a few sequences on one pipeline, in every order of injection.
class BestOfPipeline {
 public:
  BestOfPipeline(const strategy::Pipeline& pipeline, const cost::CostModel& cost,
                 const std::vector<int64_t>& lengths)
      : times_(pipeline, cost),
        lengths_(lengths),
        load_{.stages = pipeline.scheme.pp,
              .lanes = 1,
              .credit_tokens = cost::MemoryCost(cost, pipeline.scheme).credit_tokens(kWorld)},
        most_tokens_(cost::MemoryCost(cost, pipeline.scheme).max_len_tokens(kWorld)),
        best_(size_t{1} << lengths.size(), kNever) {
    best_[0] = 0;
    extend(0);
  }
  int64_t of(size_t subset) const { return best_[subset]; }

 private:
  // Adds every possible next micro-batch.
  void extend(size_t used) {
    if (used != 0) best_[used] = std::min(best_[used], schedule::schedule_pipeline(load_).makespan_ns);
    for (size_t bin = 1; bin < best_.size(); ++bin) {
      if ((bin & used) != 0) continue;
      cost::Work work;
      for (size_t i = 0; i < lengths_.size(); ++i) {
        if ((bin >> i & 1) != 0) work += cost::Work::of_lane(lengths_[i], lengths_[i], 1);
      }
      if (work.tokens > most_tokens_) continue;
      load_.micro_batches.push_back(times_.of(std::span(&work, 1), 0));
      extend(used | bin);
      load_.micro_batches.pop_back();
    }
  }

  schedule::MicroBatchTimes times_;
  const std::vector<int64_t>& lengths_;
  schedule::PipelineLoad load_;
  int64_t most_tokens_;
  std::vector<int64_t> best_;
};

int64_t exhaustive(const strategy::Strategy& strategy, const cost::CostModel& cost,
                   const std::vector<int64_t>& lengths) {
  const size_t subsets = size_t{1} << lengths.size();
  std::vector<int64_t> best(subsets, kNever);  // for the pipelines so far, by sequences that they hold
  best[0] = 0;
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    const BestOfPipeline one(pipeline, cost, lengths);
    std::vector<int64_t> next(subsets, kNever);
    for (size_t all = 0; all < subsets; ++all) {
      for (size_t here = 0; here < subsets; ++here) {
        if ((here & ~all) == 0) next[all] = std::min(next[all], std::max(best[all & ~here], one.of(here)));
      }
    }
    best = next;
  }
  return best.back();
}

std::vector<strategy::Sequence> sequences_of(const std::vector<int64_t>& lengths) {
  std::vector<strategy::Sequence> sequences;
  for (const int64_t length : lengths) sequences.push_back({.length_tokens = length});
  return sequences;
}

Planner planner_of(const std::string& text, const cost::CostModel& cost) {
  return Planner({.world_size = kWorld, .candidates = {strategy::parse_strategy(text, kWorld)}}, cost);
}

// Tensor parallelism and stages take 390 and 302 tokens at different costs, which no estimate tells apart; no
// single move helps.
TEST(Search, ExchangesTwoSequencesOfASmallBatch) {
  const cost::CostModel cost = test_cost(128'000'000, 8);
  const Planner planner({.world_size = kWorld,
                         .candidates = {strategy::parse_strategy("<1,2,1> + <2,1,1>", kWorld)},
                         .method = ours()},
                        cost);
  const strategy::StepPlan plan = planner.plan(
      0, {{.length_tokens = 555}, {.length_tokens = 390}, {.length_tokens = 555}, {.length_tokens = 302}});
  std::vector<int64_t> staged;
  for (const strategy::PipelineMicroBatch& micro_batch : plan.pipelines[0].micro_batches) {
    for (const strategy::MicroBatchSequence& each : micro_batch.sequences)
      staged.push_back(each.length_tokens);
  }
  std::ranges::sort(staged);
  EXPECT_EQ(staged, (std::vector<int64_t>{302, 555}));
}

TEST(Search, BoundIsBelowAndPlanCloseToTheExhaustiveBest) {
  const std::vector<std::string> texts = {"2x<1,1,1>",         "<2,1,1> + 2x<1,1,1>", "<1,2,1>",
                                          "<1,2,1> + <2,1,1>", "2x<1,2,1>",           "<1,4,1>"};
  const cost::CostModel cost = test_cost();
  std::vector<int64_t> excess_ppm;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    base::Rng rng(seed, 21);
    const std::string& text = texts[seed % texts.size()];
    const Planner planner = planner_of(text, cost);
    std::vector<int64_t> lengths;
    for (int64_t i = rng.between(1, 5); i > 0; --i) {
      const int64_t longest = rng.below(3) == 0 ? planner.max_len_tokens() : planner.max_len_tokens() / 4;
      lengths.push_back(rng.between(1, longest));
    }
    const int64_t best = exhaustive(planner.options().candidates[0], cost, lengths);
    const strategy::StepPlan plan = planner.plan(0, sequences_of(lengths));
    ASSERT_LE(plan.lower_bound_ns, best) << text << " seed " << seed;
    ASSERT_LE(best, plan.estimated_ns) << text << " seed " << seed;
    excess_ppm.push_back(static_cast<int64_t>(cost::Wide{plan.estimated_ns - best} * 1'000'000 / best));
  }
  std::sort(excess_ppm.begin(), excess_ppm.end());
  EXPECT_LE(excess_ppm[excess_ppm.size() / 2], 100);
  EXPECT_LE(excess_ppm.back(), 10'000);
}

// Longer batches, beyond exhaustion.
TEST(Search, BoundIsBelowThePlan) {
  const cost::CostModel cost = test_cost();
  for (const std::string text : {"4x<1,1,1>", "<2,1,1> + 2x<1,1,1>", "<1,2,1> + <2,1,1>", "<1,4,1>"}) {
    const Planner ours = planner_of(text, cost);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      base::Rng rng(seed, 22);
      std::vector<int64_t> lengths;
      for (int i = 0; i < 60; ++i)
        lengths.push_back(rng.between(1, i % 9 == 0 ? ours.max_len_tokens() : 300));
      const strategy::StepPlan plan = ours.plan(0, sequences_of(lengths));
      EXPECT_LE(plan.lower_bound_ns, plan.estimated_ns) << text;
    }
  }
}

TEST(Search, CandidatesThatCannotWinAreNotPlannedAndTheBestStays) {
  const cost::CostModel cost = test_cost();
  const std::vector<std::string> texts = {"<1,4,1>", "4x<1,1,1>", "<2,1,1> + 2x<1,1,1>", "<2,2,1>"};
  PlannerOptions options{.world_size = kWorld};
  for (const std::string& text : texts) options.candidates.push_back(strategy::parse_strategy(text, kWorld));
  const Planner planner(options, cost);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    base::Rng rng(seed, 23);
    std::vector<int64_t> lengths;
    for (int i = 0; i < 30; ++i) lengths.push_back(rng.between(1, 900));
    const strategy::StepPlan plan = planner.plan(0, sequences_of(lengths));
    EXPECT_EQ(plan.candidates.size(), texts.size());
    int64_t lower_ns = kNever;
    for (const std::string& text : texts) {
      const strategy::StepPlan alone = planner_of(text, cost).plan(0, sequences_of(lengths));
      EXPECT_LE(plan.estimated_ns, alone.estimated_ns) << text;
      lower_ns = std::min(lower_ns, alone.lower_bound_ns);
    }
    EXPECT_EQ(plan.lower_bound_ns, lower_ns);
  }
}

TEST(Search, CandidateThatIsGivenUpIsKnownToEndNoSooner) {
  const cost::CostModel cost = test_cost();
  const Planner planner = planner_of("<1,4,1>", cost);
  const SortedBatch batch(std::vector<int64_t>(40, planner.max_len_tokens() / 2));
  CandidateSearch search(planner.options().candidates.front(), planner.schemes(), batch);
  const int64_t below_ns = *search.lower_bound_ns() + 1;
  ASSERT_TRUE(search.run(Effort::kQuick, below_ns).empty()) << "a bound that a plan attains shows nothing";
  EXPECT_EQ(search.end_ns(), kNever);
  EXPECT_EQ(search.known_ns(), below_ns);
}

TEST(Search, EdgeCases) {
  const cost::CostModel cost = test_cost();
  for (const std::string text : {"<1,1,1>", "4x<1,1,1>", "<2,1,1> + 2x<1,1,1>", "2x<1,2,1>", "<1,4,1>"}) {
    const Planner planner = planner_of(text, cost);
    const int64_t most = planner.max_len_tokens();
    const std::vector<std::vector<int64_t>> batches = {{},
                                                       {1},
                                                       {most},
                                                       std::vector<int64_t>(3, most),
                                                       std::vector<int64_t>(40, 100),
                                                       std::vector<int64_t>(3000, 7)};
    for (const std::vector<int64_t>& lengths : batches) {
      const strategy::StepPlan plan = planner.plan(0, sequences_of(lengths));
      EXPECT_NO_THROW(strategy::validate(plan, kWorld)) << text;
      EXPECT_LE(plan.lower_bound_ns, plan.estimated_ns);
      EXPECT_EQ(strategy::canonical_bytes(plan),
                strategy::canonical_bytes(planner.plan(0, sequences_of(lengths))));
    }
    EXPECT_THROW(planner.plan(0, sequences_of({most + 1})), base::InfeasibleError) << text;
  }
}

}  // namespace
}  // namespace sluice::plan
