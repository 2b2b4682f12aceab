// Whole runs with low-precision GEMMs: in the layers that a pipeline names and in no others, on whichever of
// its ranks they are; and the noise that a step measures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/test_tuning.h"
#include "runtime/test_equivalence.h"

namespace sluice::runtime {
namespace {

using base::GemmFormat;
using strategy::LowPrecisionGemms;

RunOptions narrowed(std::vector<LowPrecisionGemms> narrow, int ranks = 1, const char* strategy = "<1,1,1>") {
  RunOptions options;
  options.low_precision = std::move(narrow);
  options.world_size = ranks;
  options.strategies = {strategy};
  return options;
}

double distance(const RunRecord& one, const RunRecord& other) {
  double most = 0;
  for (size_t step = 0; step < one.losses.size(); ++step)
    most = std::max(most, std::abs(one.losses[step] / other.losses[step] - 1));
  return most;
}

TEST(NarrowRuns, LearnNearlyTheSameAndRepeatToTheBit) {
  const RunRecord wide = run_in_process(narrowed({}));
  for (const GemmFormat format : base::kLowPrecisionFormats) {
    const RunOptions options = narrowed({{format, {0, 1, 2, 3}}});
    const RunRecord narrow = run_in_process(options);
    EXPECT_GT(distance(narrow, wide), 1e-9) << name_of(format);
    EXPECT_LT(distance(narrow, wide), 0.05) << name_of(format);
    EXPECT_EQ(narrow.losses, run_in_process(options).losses) << name_of(format);
  }
}

// A row has one factor on any rank: stages, and lanes with whole rows, round rows alike.
TEST(NarrowRuns, StagesHaveTheLayersThatTheirPipelineNames) {
  const LowPrecisionGemms cases[] = {{GemmFormat::kInt8, {0}},
                                     {GemmFormat::kInt8, {1, 3}},
                                     {GemmFormat::kInt8, {0, 1, 2, 3}},
                                     {GemmFormat::kFloat8, {0, 1, 2, 3}}};
  for (const LowPrecisionGemms& own : cases) {
    const std::vector<LowPrecisionGemms> narrow{own};
    const RunRecord one = run_in_process(narrowed(narrow));
    expect_equal(run_in_process(narrowed(narrow, 2, "<1,2,1>")), one, 1e-11, 1e-11);
    expect_equal(run_in_process(narrowed(narrow, 4, "<1,4,1>")), one, 1e-11, 1e-11);
    RunOptions again = narrowed(narrow, 2, "<1,2,1>");
    again.policies = {{.recompute_permille = 1000}};
    expect_equal(run_in_process(again), one, 1e-11, 1e-11);
  }
}

// With FSDP, lanes make their operations in another place. TP ranks have parts of rows, with their own
// factors.
TEST(NarrowRuns, EveryKindOfPipelineStaysNear) {
  const RunRecord wide = run_in_process(narrowed({}));
  const LowPrecisionGemms all{GemmFormat::kInt8, {0, 1, 2, 3}};
  for (const GemmFormat format : {GemmFormat::kInt8, GemmFormat::kFloat8}) {
    for (const char* strategy : {"<2,1,1>", "<1,1,2>", "<1,1,4,4>", "<2,1,2,2>"}) {
      const RunRecord narrow = run_in_process(narrowed({{format, {0, 1, 2, 3}}}, 4, strategy));
      EXPECT_GT(distance(narrow, wide), 1e-9) << strategy;
      EXPECT_LT(distance(narrow, wide), 0.05) << strategy;
    }
  }
  // Low precision in one of two pipelines adds less noise than in both.
  const double one_of_two = distance(run_in_process(narrowed({all}, 2, "2x<1,1,1>")), wide);
  EXPECT_GT(one_of_two, 1e-9);
  EXPECT_LT(one_of_two, 0.05);
}

// Adapters beside weights that are coded once a step; DoRA scales the products.
TEST(NarrowRuns, AdaptersLearnBesideWeightsOf8BitFloats) {
  for (const bool dora : {false, true}) {
    RunOptions options = narrowed({});
    model::adapt(options.model, {.rank = 2, .alpha = 4, .targets = {"q_proj", "down_proj"}, .dora = dora});
    const RunRecord wide = run_in_process(options);
    options.low_precision = {{GemmFormat::kFloat8, {0, 1, 2, 3}}};
    const RunRecord narrow = run_in_process(options);
    EXPECT_GT(distance(narrow, wide), 1e-9);
    EXPECT_LT(distance(narrow, wide), 0.05);
    options.strategies = {"<1,2,1>"};
    options.world_size = 2;
    options.policies = {{.recompute_permille = 1000}};
    expect_equal(run_in_process(options), narrow, 1e-11, 1e-11);
  }
}

TEST(NarrowRuns, DelaysChangeNothing) {
  RunOptions options = narrowed({{GemmFormat::kInt8, {0, 2}}}, 4, "<1,1,2,2> + 2x<1,1,1>");
  options.gpus_per_node = 2;
  expect_delays_change_nothing(options);
}

}  // namespace
}  // namespace sluice::runtime
