#include "exact/exact.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "cost/memory_cost.h"
#include "cost/shipped.h"
#include "plan/planner.h"
#include "plan/test_models.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::exact {
namespace {

using namespace plan;

constexpr int kFewGpus = 8;

std::vector<strategy::Sequence> sequences_of(const std::vector<int64_t>& lengths) {
  std::vector<strategy::Sequence> sequences;
  for (const int64_t length : lengths) sequences.push_back({.length_tokens = length});
  return sequences;
}

Planner planner_of(const std::vector<std::string>& texts, const cost::CostModel& cost,
                   std::shared_ptr<const Method> method) {
  PlannerOptions options{.world_size = kFewGpus, .method = std::move(method)};
  for (const std::string& text : texts)
    options.candidates.push_back(strategy::parse_strategy(text, kFewGpus));
  return Planner(options, cost);
}

int64_t makespan_ns(const std::vector<strategy::PipelinePlan>& pipelines, const cost::CostModel& cost) {
  int64_t last_ns = 0;
  for (const strategy::PipelinePlan& pipeline : pipelines) {
    const schedule::PipelineLoad load = schedule::pipeline_load(pipeline, cost, kFewGpus);
    last_ns = std::max(last_ns, schedule::schedule_pipeline(load).makespan_ns);
  }
  return last_ns;
}

// One sequence after the other joins any micro-batch or opens one at any place of any pipeline.
class EveryPlan {
 public:
  EveryPlan(const strategy::Strategy& strategy, const cost::CostModel& cost,
            const std::vector<int64_t>& lengths)
      : cost_(cost), lengths_(lengths) {
    for (const strategy::Pipeline& pipeline : strategy.pipelines) {
      pipelines_.push_back(
          {.pipeline = pipeline,
           .max_len_tokens = cost::MemoryCost(cost, pipeline.scheme).max_len_tokens(kFewGpus),
           .micro_batches = {}});
    }
    place(0);
  }
  int64_t best_ns() const { return best_ns_; }

 private:
  void place(size_t sequence) {
    if (sequence == lengths_.size()) {
      best_ns_ = std::min(best_ns_, makespan_ns(pipelines_, cost_));
      return;
    }
    const strategy::MicroBatchSequence added{static_cast<int>(sequence), lengths_[sequence]};
    for (strategy::PipelinePlan& pipeline : pipelines_) {
      std::vector<strategy::PipelineMicroBatch>& micro_batches = pipeline.micro_batches;
      for (size_t at = 0; at <= micro_batches.size() && added.length_tokens <= pipeline.max_len_tokens;
           ++at) {
        micro_batches.insert(micro_batches.begin() + static_cast<ptrdiff_t>(at),
                             strategy::PipelineMicroBatch{.sequences = {added}});
        place(sequence + 1);
        micro_batches.erase(micro_batches.begin() + static_cast<ptrdiff_t>(at));
      }
      for (size_t at = 0; at < micro_batches.size(); ++at) {
        if (micro_batches[at].tokens() + added.length_tokens > pipeline.max_len_tokens) continue;
        micro_batches[at].sequences.push_back(added);
        place(sequence + 1);
        micro_batches[at].sequences.pop_back();
      }
    }
  }

  const cost::CostModel& cost_;
  const std::vector<int64_t>& lengths_;
  std::vector<strategy::PipelinePlan> pipelines_;
  int64_t best_ns_ = std::numeric_limits<int64_t>::max();
};

// Some lengths are equal, some as long as they may be.
std::vector<int64_t> random_lengths(base::Rng& rng, int64_t count, int64_t longest) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    const bool again = i > 0 && rng.below(4) == 0;
    lengths.push_back(again ? lengths.back() : rng.between(1, rng.below(3) == 0 ? longest : longest / 4));
  }
  return lengths;
}

TEST(Exact, EqualsEveryPlan) {
  const cost::CostModel roomy = test_cost();
  const cost::CostModel tight = test_cost(45'000'000);
  const std::vector<std::string> texts = {"2x<1,1,1>",         "<1,2,1>",           "<1,4,1>",
                                          "<1,2,1> + <2,1,1>", "<2,2,1> + <1,1,1>", "<1,3,1> + <1,1,1>"};
  for (uint64_t seed = 0; seed < 48; ++seed) {
    base::Rng rng(seed, 61);
    const cost::CostModel& cost = seed % 2 == 0 ? roomy : tight;
    const Planner planner = planner_of({texts[seed % texts.size()]}, cost, method());
    const std::vector<int64_t> lengths = random_lengths(rng, rng.between(1, 4), planner.max_len_tokens());
    const strategy::StepPlan plan = planner.plan(0, sequences_of(lengths));
    ASSERT_NO_THROW(strategy::validate(plan, kFewGpus)) << "seed " << seed;
    EXPECT_EQ(plan.estimated_ns, makespan_ns(plan.pipelines, cost)) << "seed " << seed;
    EXPECT_EQ(plan.estimated_ns, EveryPlan(planner.options().candidates[0], cost, lengths).best_ns())
        << "seed " << seed;
  }
}

// The bound is below the optimum, and ours is close above it.
TEST(Exact, BoundAndOursEncloseTheOptimum) {
  const std::vector<cost::CostModel> costs = {test_cost(), test_cost(45'000'000), test_cost(128'000'000, 8)};
  const std::vector<std::vector<std::string>> pools = {
      {"4x<1,1,1>", "<2,1,1> + 2x<1,1,1>"},
      {"<1,2,1> + <2,1,1>", "2x<1,2,1>"},
      {"<1,4,1>"},
      {"<1,3,1> + <1,1,1>", "<2,2,1>"},
      {"<1,4,1> + <2,1,1> + 2x<1,1,1>"},
      {"<4,1,1> + <1,2,1> + 2x<1,1,1>", "2x<2,2,1>"},
      {"8x<1,1,1>", "<4,1,1> + 4x<1,1,1>", "<2,1,1> + 6x<1,1,1>"},
      {"<2,4,1>", "<1,4,1> + <1,2,1>"}};
  std::vector<int64_t> excess_ppm;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    base::Rng rng(seed, 62);
    const cost::CostModel& cost = costs[seed / pools.size() % costs.size()];
    const std::vector<std::string>& texts = pools[seed % pools.size()];
    const Planner proving = planner_of(texts, cost, method());
    const std::vector<int64_t> lengths = random_lengths(rng, rng.between(1, 6), proving.max_len_tokens());
    const strategy::StepPlan best = proving.plan(0, sequences_of(lengths));
    const strategy::StepPlan found = planner_of(texts, cost, ours()).plan(0, sequences_of(lengths));
    ASSERT_LE(found.lower_bound_ns, best.estimated_ns) << "seed " << seed;
    ASSERT_LE(best.estimated_ns, found.estimated_ns) << "seed " << seed;
    const auto excess = static_cast<int64_t>(cost::Wide{found.estimated_ns - best.estimated_ns} * 1'000'000 /
                                             best.estimated_ns);
    EXPECT_LE(excess, 50'000) << "seed " << seed << ' ' << base::join(texts, " | ");
    excess_ppm.push_back(excess);
  }
  std::sort(excess_ppm.begin(), excess_ppm.end());
  EXPECT_LE(excess_ppm[excess_ppm.size() * 9 / 10], 10'000);
}

TEST(Exact, BoundAndOursEncloseTheOptimumOfLanes) {
  const std::vector<cost::CostModel> costs = {test_cost(), test_cost(45'000'000), test_cost(128'000'000, 8)};
  const std::vector<std::string> texts = {
      "<1,1,4>",           "<1,2,2>",   "<1,1,2> + <1,2,1>", "<2,1,2> + <1,1,2>", "<1,3,2>",
      "<1,1,2> + <1,2,2>", "2x<1,1,2>", "<1,1,3> + <1,1,1>", "<2,2,2>",           "2x<1,2,2>"};
  std::vector<int64_t> excess_ppm;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    base::Rng rng(seed, 63);
    const cost::CostModel& cost = costs[seed / texts.size() % costs.size()];
    const std::string& text = texts[seed % texts.size()];
    const Planner proving = planner_of({text}, cost, method());
    const std::vector<int64_t> lengths = random_lengths(rng, rng.between(1, 4), proving.max_len_tokens());
    const strategy::StepPlan best = proving.plan(0, sequences_of(lengths));
    ASSERT_NO_THROW(strategy::validate(best, kFewGpus)) << "seed " << seed;
    EXPECT_EQ(best.estimated_ns, makespan_ns(best.pipelines, cost)) << "seed " << seed;
    const strategy::StepPlan found = planner_of({text}, cost, ours()).plan(0, sequences_of(lengths));
    ASSERT_LE(found.lower_bound_ns, best.estimated_ns) << "seed " << seed;
    ASSERT_LE(best.estimated_ns, found.estimated_ns) << "seed " << seed;
    excess_ppm.push_back(static_cast<int64_t>(cost::Wide{found.estimated_ns - best.estimated_ns} * 1'000'000 /
                                              best.estimated_ns));
  }
  std::sort(excess_ppm.begin(), excess_ppm.end());
  EXPECT_LE(excess_ppm[excess_ppm.size() / 2], 10'000);
  EXPECT_LE(excess_ppm[excess_ppm.size() * 9 / 10], 30'000);
  EXPECT_LE(excess_ppm.back(), 100'000);
}

TEST(Exact, RefusesWhatIsTooLargeAndSaysTheLimits) {
  const cost::CostModel cost = test_cost();
  const auto message = [&](const std::string& text, size_t count) {
    try {
      planner_of({text}, cost, method()).plan(0, sequences_of(std::vector<int64_t>(count, 5)));
    } catch (const base::InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message("2x<1,1,1>", kMostExactSequences), "");
  EXPECT_NE(message("2x<1,1,1>", kMostExactSequences + 1).find("at most 12 sequences"), std::string::npos);
  EXPECT_EQ(message("<1,2,1>", kMostStagedExactSequences), "");
  EXPECT_NE(message("<1,2,1>", kMostStagedExactSequences + 1).find("7 where pp > 1"), std::string::npos);
  EXPECT_NE(message("<1,1,2>", kMostLanedExactSequences + 1).find("5 where cp > 1"), std::string::npos);
  EXPECT_NE(message("<1,1,8>", 1).find("at most 4 lanes"), std::string::npos);
}

TEST(Exact, NothingToPlanAndNothingThatHoldsIt) {
  const cost::CostModel cost = test_cost();
  const Planner planner = planner_of({"<1,2,1> + <1,1,1>"}, cost, method());
  EXPECT_EQ(planner.plan(0, {}).estimated_ns, 0);
  EXPECT_THROW(planner.plan(0, sequences_of({planner.max_len_tokens() + 1})), base::InfeasibleError);
}

// The proved best of a few sequences on different pipelines, as reviewed.
TEST(Exact, PlansDifferentPipelines) {
  const cost::CostModel cost = test_cost(128'000'000);
  const Planner planner(
      {.world_size = 3, .candidates = {strategy::parse_strategy("<1,2,1> + <1,1,1>", 3)}, .method = method()},
      cost);
  const strategy::StepPlan plan = planner.plan(0, sequences_of({900, 600, 450, 300, 120}));
  EXPECT_EQ(plan.estimated_ns, 356'569'264);
  EXPECT_EQ(plan.lower_bound_ns, plan.estimated_ns);
  std::vector<std::vector<int>> micro_batches;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
      micro_batches.emplace_back();
      for (const strategy::MicroBatchSequence& of : micro_batch.sequences)
        micro_batches.back().push_back(of.sequence);
    }
  }
  EXPECT_EQ(micro_batches, (std::vector<std::vector<int>>{{4}, {3}, {0}, {1, 2}}));
}

// One micro-batch on two lanes of different nodes that nearly fills them, and whose ring is exposed.
TEST(Exact, IsNotBelowTheBoundWhereLanesExchangeForLongerThanAFullMicroBatchComputes) {
  constexpr int kRanks = 16;
  const cost::CostModel cost(cost::shipped("a800-32b").options);
  PlannerOptions options{.world_size = kRanks, .candidates = {strategy::parse_strategy("<8,1,2>", kRanks)}};
  std::vector<strategy::Sequence> sequences;
  for (const int64_t length : {38, 23'972, 444, 41, 2}) sequences.push_back({.length_tokens = length});
  const strategy::StepPlan ours = Planner(options, cost).plan(0, sequences);
  options.method = method();
  EXPECT_EQ(ours.bounded_by, strategy::Proof::kRings);
  EXPECT_LE(ours.lower_bound_ns, Planner(options, cost).plan(0, sequences).estimated_ns);
}

}  // namespace
}  // namespace sluice::exact
