// Step graphs as text: every file of tests/golden/graph holds a name, a description, a plan and the graph
// that comes of it. SLUICE_UPDATE_GOLDEN=1 rewrites what is expected; review the difference.
#include "base/golden.h"

#include <gtest/gtest.h>

#include "graph/test_graphs.h"
#include "model/outline.h"

namespace sluice::graph {
namespace {

using base::Golden;

std::string lowered(const Golden& golden) {
  const int ranks = static_cast<int>(golden.number("ranks"));
  const model::Outline outline = model::outline_of_12_heads(golden.number("layers"), golden.has("tied"));
  const auto cost =
      testing::small_cost(outline, {.gpus_per_node = static_cast<int>(golden.number("gpus_per_node")),
                                    .device_bytes = golden.number("device_bytes")});
  BuildOptions options;
  if (golden.has("purpose")) options.purpose = Purpose::kEvaluate;
  strategy::StepPlan plan =
      testing::plan_from_text(golden.value("strategy"), golden.values.at("load"), ranks);
  for (strategy::PipelinePlan& pipeline : plan.pipelines) {
    for (strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
      micro_batch.memory.recompute_permille = golden.has("recompute") ? strategy::MemoryPolicy::kAll : 0;
      if (golden.has("offload_permille"))
        micro_batch.memory.offload_permille = static_cast<int>(golden.number("offload_permille"));
    }
  }
  return to_text(build(plan, model::parameter_table(outline), cost, ranks, options));
}

TEST(Golden, GraphsAreAsReviewed) {
  const bool rewrite = std::getenv("SLUICE_UPDATE_GOLDEN") != nullptr;
  const auto use = rewrite ? base::GoldenUse::kRewrite : base::GoldenUse::kCompare;
  EXPECT_GE(base::check_golden("graph", use, lowered), 5);
}

}  // namespace
}  // namespace sluice::graph
