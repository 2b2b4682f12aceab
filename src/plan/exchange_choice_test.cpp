// Planners' use of the exchanges that they may choose from.
#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "cost/exchange.h"
#include "model/outline.h"
#include "plan/planner.h"
#include "plan/precision.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::plan {
namespace {

constexpr int kRanks = 32;

cost::CostModel cost_of(const std::string& model, const std::string& preset) {
  const strategy::Cluster cluster = strategy::cluster_preset(preset, kRanks / 8);
  const cost::AnalyticMemory memory{.device_bytes = int64_t{600} << 30, .element_bytes = 2};
  const std::vector<int> degrees = {1, 2};
  return cost::CostModel(cost::analytic_options(model::named_outline(model), cost::rates_of(cluster), memory,
                                                degrees, cluster.gpus_per_node));
}

Planner planner_of(const cost::CostModel& cost, const std::string& strategy,
                   const cost::ExchangeSet& exchanges) {
  return {{.world_size = kRanks, .candidates = {strategy::parse_strategy(strategy, kRanks)}},
          cost::choosing_from(cost, exchanges)};
}

// Many short sequences and a few of up to 64K tokens.
std::vector<strategy::Sequence> random_batch(uint64_t seed) {
  base::Rng rng(seed);
  std::vector<strategy::Sequence> batch;
  for (int64_t i = 0; i < 60; ++i) {
    const int64_t longest = rng.below(6) == 0 ? 65'536 : 4096;
    batch.push_back({.document = i, .length_tokens = rng.between(64, rng.between(128, longest))});
  }
  return batch;
}

struct TrainingSetting {
  const char* model;
  const char* cluster;
  const char* strategy;
};

class ExchangeChoice : public testing::TestWithParam<TrainingSetting> {};

TEST_P(ExchangeChoice, MoreOfThemNeverMakeAMeanStepLonger) {
  const auto& [model, cluster, strategy] = GetParam();
  const cost::CostModel cost = cost_of(model, cluster);
  const Planner rings = planner_of(cost, strategy, {.heads = false, .nested = false});
  const Planner any = planner_of(cost, strategy, {});
  int64_t ring_ns = 0, any_ns = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const std::vector<strategy::Sequence> batch = random_batch(seed);
    const strategy::StepPlan ringed = rings.plan(0, batch), free = any.plan(0, batch);
    EXPECT_LE(free.lower_bound_ns, free.estimated_ns);
    EXPECT_LE(free.lower_bound_ns, ringed.estimated_ns) << "seed " << seed;
    ring_ns += ringed.estimated_ns;
    any_ns += free.estimated_ns;
  }
  // Neither search goes on for gains below kNegligiblePart, and there are several of them in a plan.
  EXPECT_LE(any_ns, ring_ns + 4 * ring_ns / kNegligiblePart)
      << "ratio " << static_cast<double>(any_ns) / static_cast<double>(ring_ns);
}

// Checks the plan itself: under no allowed exchange would a micro-batch be shorter.
TEST_P(ExchangeChoice, UnitsTakeTheCheapest) {
  const auto& [model, cluster, strategy] = GetParam();
  const cost::CostModel cost = cost_of(model, cluster);
  const strategy::StepPlan plan = planner_of(cost, strategy, {}).plan(0, random_batch(1));
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    const schedule::MicroBatchTimes times(pipeline.pipeline, cost);
    for (strategy::PipelineMicroBatch micro_batch : pipeline.micro_batches) {
      if (micro_batch.lanes == 1 || !micro_batch.own.empty()) continue;
      const auto exposed_ns = [&] {
        const schedule::TimedMicroBatch timed = times.of(micro_batch);
        int64_t sum_ns = 0;
        for (const auto* by_stage : {&timed.forward_cp_exchange_ns, &timed.backward_cp_exchange_ns}) {
          for (const int64_t ns : *by_stage) sum_ns += ns;
        }
        return sum_ns;
      };
      const int64_t chosen_ns = exposed_ns();
      micro_batch.exchange = strategy::Exchange::kRing;
      micro_batch.nested_lanes = 0;
      EXPECT_LE(chosen_ns, exposed_ns());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, ExchangeChoice,
                         testing::Values(TrainingSetting{"llama-7b", "h100x8", "<1,1,32>"},
                                         TrainingSetting{"llama-7b", "a800x8", "2x<1,1,16>"},
                                         TrainingSetting{"llama-13b", "a800x8", "<2,1,16>"},
                                         TrainingSetting{"llama-7b", "a800x8", "<1,2,16>"},
                                         TrainingSetting{"llama-32b", "a800x8", "<1,1,32>"}),
                         [](const auto& info) { return base::text("Setting", info.index); });

TEST(ExchangeChoice, OfOneAllowedIsThatOneOrARing) {
  const cost::CostModel cost = cost_of("llama-7b", "a800x8");
  for (const char* name : {"ring", "heads", "nested"}) {
    const Planner planner =
        planner_of(cost, "<1,1,32>", cost::exchange_set(strategy::parse_exchange_rule(name)));
    const strategy::StepPlan plan = planner.plan(0, random_batch(3));
    std::set<strategy::Exchange> used;
    for (const strategy::PipelineMicroBatch& micro_batch : plan.pipelines[0].micro_batches) {
      if (micro_batch.lanes > 1) used.insert(micro_batch.exchange);
    }
    used.erase(strategy::parse_exchange(name));
    used.erase(strategy::Exchange::kRing);
    EXPECT_TRUE(used.empty()) << name;
  }
  EXPECT_THROW(strategy::parse_exchange_rule("rings"), base::InputError);
}

}  // namespace
}  // namespace sluice::plan
