// Under the planner's own plans the training run is that of one rank, up to the order of summation; under
// hand-made ones runtime/equivalence_test shows it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "cost/memory_cost.h"
#include "model/outline.h"
#include "plan/planner.h"
#include "published/flex_sp.h"
#include "published/paper_plan.h"
#include "runtime/test_cluster.h"

namespace sluice {
namespace {

constexpr int kWorld = 4;
constexpr double kTolerance = 1e-11;
const std::vector<std::string> kWithoutLanes = {"4x<1,1,1>", "<2,1,1> + 2x<1,1,1>", "<1,2,1> + <2,1,1>",
                                                "<1,4,1>", "<2,2,1>"};
const std::vector<std::string> kWithLanes = {"<1,1,4>", "<1,2,2>", "<2,1,2>", "<1,1,3> + <1,1,1>",
                                             "4x<1,1,1>"};

plan::PlannerOptions options_of(const std::vector<std::string>& texts, plan::Selection selection) {
  plan::PlannerOptions options{.world_size = kWorld, .selection = selection};
  for (const std::string& text : texts) options.candidates.push_back(strategy::parse_strategy(text, kWorld));
  return options;
}

// What the planner chose over a run.
struct Chosen {
  std::set<std::string> strategies;
  bool recomputed = false;
};

void expect_same(const runtime::RunRecord& record, const runtime::RunRecord& reference) {
  EXPECT_EQ(record.exchange_bytes, record.expected_exchange_bytes);
  EXPECT_EQ(record.fsdp_bytes, record.expected_fsdp_bytes);
  for (size_t step = 0; step < reference.losses.size(); ++step) {
    EXPECT_NEAR(record.losses.at(step), reference.losses[step],
                kTolerance * std::abs(reference.losses[step]));
    EXPECT_NEAR(record.gradient_norms.at(step), reference.gradient_norms[step],
                kTolerance * reference.gradient_norms[step]);
  }
  for (const auto& [name, values] : reference.parameters) {
    double largest = 0;
    double difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i]));
      difference = std::max(difference, std::abs(values[i] - record.parameters.at(name).at(i)));
    }
    EXPECT_LE(difference, kTolerance * largest) << name;
  }
}

// Trains with the planner's plans and compares with one rank.
Chosen expect_as_one_rank(const plan::PlannerOptions& options, const std::vector<std::string>& texts,
                          int64_t device_bytes, std::vector<int64_t>* exchange_bytes = nullptr) {
  runtime::RunOptions run{.world_size = kWorld, .strategies = texts, .device_bytes = device_bytes};
  const plan::Planner planner(options, runtime::small_cost(run.model, run.gpus_per_node, device_bytes));
  Chosen chosen;
  std::mutex mutex;
  run.plan = [&](int64_t step, const std::vector<strategy::Sequence>& sequences, const strategy::Strategy&,
                 int64_t) {
    strategy::StepPlan plan = planner.plan(step, sequences);
    const std::lock_guard lock(mutex);
    chosen.strategies.insert(to_text(plan.strategy()));
    for (const auto& pipeline : plan.pipelines) {
      for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches)
        chosen.recomputed |= micro_batch.memory.recomputes();
    }
    return plan;
  };
  const runtime::RunRecord record = runtime::run_in_process(run);
  if (exchange_bytes != nullptr) *exchange_bytes = record.exchange_bytes;
  expect_same(record, runtime::run_in_process({}));
  return chosen;
}

// Memory in which a rank by itself holds some of the batches' sequences, of up to 64 tokens, but not the
// longest.
int64_t tight_bytes() {
  const model::Outline outline = model::outline_of_odd_sizes();
  const auto holds = [&](int64_t device_bytes) {
    return cost::MemoryCost(runtime::small_cost(outline, 8, device_bytes), {}).max_len_tokens(kWorld);
  };
  int64_t least = 1;
  for (int64_t most = runtime::kAmpleBytes; least < most;) {
    const int64_t middle = least + (most - least) / 2;
    if (holds(middle) >= 40) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  return least;
}

TEST(PlannedEquivalence, OursWithoutLanes) {
  const Chosen chosen = expect_as_one_rank(options_of(kWithoutLanes, plan::Selection::kCycle), kWithoutLanes,
                                           runtime::kAmpleBytes);
  EXPECT_EQ(chosen.strategies.size(), kWithoutLanes.size());
}

TEST(PlannedEquivalence, Published) {
  plan::PlannerOptions options = options_of(kWithoutLanes, plan::Selection::kCycle);
  options.method = published::paper();
  const Chosen chosen = expect_as_one_rank(options, kWithoutLanes, runtime::kAmpleBytes);
  EXPECT_EQ(chosen.strategies.size(), kWithoutLanes.size());
}

TEST(PlannedEquivalence, OursOnLanesWhereMemoryIsTight) {
  std::vector<int64_t> exchange_bytes;
  const Chosen chosen = expect_as_one_rank(options_of(kWithLanes, plan::Selection::kCycle), kWithLanes,
                                           tight_bytes(), &exchange_bytes);
  EXPECT_GE(chosen.strategies.size(), 4u);
  EXPECT_GT(*std::ranges::max_element(exchange_bytes), 0);
}

TEST(PlannedEquivalence, OursUnderMemoryPolicies) {
  plan::PlannerOptions options = options_of({"4x<1,1,1>"}, plan::Selection::kBest);
  options.policies = {{}, {.recompute_permille = 1000}};
  EXPECT_TRUE(expect_as_one_rank(options, {"4x<1,1,1>"}, tight_bytes()).recomputed);
}

// Memory in which a rank that shares all parameters holds some of the sequences, and groups of it the others.
TEST(PlannedEquivalence, FlexSp) {
  const published::GroupProgram program{.scheme = {.cp = kWorld, .fsdp = kWorld}};
  runtime::RunOptions run{
      .world_size = kWorld, .strategies = {to_text(program.scheme)}, .exchanges = {{.head_lanes = 0}}};
  const auto cost_of = [&](int64_t bytes) {
    return runtime::small_cost(run.model, run.gpus_per_node, bytes);
  };
  run.device_bytes = cost::MemoryCost(cost_of(runtime::kAmpleBytes), program.scheme).fixed_bytes(kWorld);
  while (published::capacity_tokens(program, 2, cost_of(run.device_bytes), kWorld) < 24)
    run.device_bytes += run.device_bytes / 64;
  std::set<int> widths;
  std::mutex mutex;
  run.plan = [&](int64_t step, const std::vector<strategy::Sequence>& sequences, const strategy::Strategy&,
                 int64_t) {
    strategy::StepPlan plan =
        published::flex_sp_plan(program, strategy::lengths_of(sequences), cost_of(run.device_bytes), kWorld);
    plan.step = step;
    plan.sequences = sequences;
    const std::lock_guard lock(mutex);
    for (const strategy::PipelineMicroBatch& micro_batch : plan.pipelines.front().micro_batches)
      widths.insert(micro_batch.lanes);
    return plan;
  };
  const runtime::RunRecord record = runtime::run_in_process(run);
  EXPECT_GE(widths.size(), 2u) << "groups of different sizes";
  EXPECT_GT(*std::ranges::max_element(record.fsdp_bytes), 0);
  expect_same(record, runtime::run_in_process({}));
}

}  // namespace
}  // namespace sluice
