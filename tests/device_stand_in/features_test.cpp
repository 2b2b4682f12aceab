// Every feature of training on stand-ins for GPUs: no fault in the order of their work, and losses as on the
// host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cluster.h"
#include "model/outline.h"
#include "runtime/test_features.h"

namespace sluice::stand_in {
namespace {

using runtime::Feature;
using runtime::RunOptions;
using runtime::short_run;

// Losses and norms of a run on stand-ins against those on the host. `tolerance`: relative.
void expect_as_on_host(RunOptions options, double tolerance) {
  options.steps = std::max<int64_t>(2, std::ssize(options.strategies));
  options.sequences = 6;
  const runtime::RunRecord host = runtime::run_in_process(options);
  const DeviceRun device = run_on_stand_ins(options);
  EXPECT_TRUE(device.faults.empty()) << device.faults.size() << " kinds of faults:\n"
                                     << text_of(device.faults);
  EXPECT_GT(device.accesses, 1000);
  const auto expect_near = [](const std::vector<double>& found, const std::vector<double>& expected,
                              double most) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], most * std::abs(expected[i]));
  };
  expect_near(device.record.losses, host.losses, tolerance);
  expect_near(device.record.gradient_norms, host.gradient_norms, 10 * tolerance);
  expect_near(device.record.evaluated_losses, host.evaluated_losses, tolerance);
}

constexpr double kTolerance = 1e-12;
// Products and sums of the stand-in's are in another order where the host has kernels of its own.
constexpr double kNarrowTolerance = 1e-5;

TEST(DeviceStandIn, DenseModelOfOneRankTrainsAsOnTheHost) {
  expect_as_on_host(short_run(1, {"<1,1,1>"}), kTolerance);
}

TEST(DeviceStandIn, SwitchingStrategiesTrainAsOnTheHost) {
  expect_as_on_host(short_run(4, {"<1,2,1> + <2,1,1>", "4x<1,1,1>", "<2,2,1>"}), kTolerance);
}

class Features : public testing::TestWithParam<Feature> {};
TEST_P(Features, TrainAsOnTheHost) {
  RunOptions options = GetParam().run();
  const bool wide = options.dtype == comm::DType::kFloat64;
  expect_as_on_host(options, wide ? kTolerance : kNarrowTolerance);
}
const auto name_of_case = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(DeviceStandIn, Features, testing::ValuesIn(runtime::features()), name_of_case);

// Beside those: how units lie on lanes, what keeps activations, and features together.
const Feature kMore[] = {
    {"Rings",
     [] {
       RunOptions options = short_run(4, {"<1,1,4>", "<2,1,2>", "<1,2,2>"});
       options.plan = runtime::ringed_plan;
       return options;
     }},
    {"PackedUnits",
     [] {
       RunOptions options = short_run(4, {"<1,1,4>", "<1,2,2>"});
       options.plan = runtime::packed_plan;
       return options;
     }},
    {"RecomputingAndOffloading",
     [] {
       RunOptions options = short_run(4, {"<1,2,1> + <2,1,1>", "<1,1,4>"});
       options.policies = {{.recompute_permille = 1000},
                           {.offload_permille = 700},
                           {.recompute_permille = 1000, .offload_permille = 1000}};
       return options;
     }},
    {"Branches",
     [] {
       RunOptions options = short_run(4, {"<1,2,2>", "2x<1,1,2>"});
       options.branches = 4;
       return options;
     }},
    {"PlacedExpertsOfOffloadedUnits",
     [] {
       RunOptions options = short_run(4, {"<1,1,4,4,4>", "<1,1,4,4,2>", "<2,1,2,2,2>"});
       options.model.experts = {.count = 8, .per_token = 2, .hidden = 14, .normalised = true};
       options.redundant_experts = 2;
       options.policies = {
           {}, {.recompute_permille = 1000}, {.recompute_permille = 1000, .offload_permille = 600}};
       return options;
     }},
    {"DividedExpertsBesideNestedExchanges",
     [] {
       RunOptions options = short_run(4, {"<1,1,4,4,4>", "<1,1,4,4,2>"});
       options.model.experts = {.count = 8, .per_token = 2, .hidden = 14, .normalised = true};
       options.plan = runtime::packed_plan;
       options.exchanges = {{.head_lanes = 2}};
       return options;
     }},
    {"LatentAttentionBesideGroupsOfExperts",
     [] {
       RunOptions options = short_run(4, {"<1,1,4>", "<1,1,4,4>", "<2,1,2>"});
       model::Outline& outline = options.model;
       outline.latent = {.q_rank = 10, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
       outline.kv_heads = outline.heads;
       outline.head_dim = 8;
       outline.rotated = 2;
       outline.experts = {.count = 8, .per_token = 2, .hidden = 9, .normalised = true, .shared_hidden = 11};
       outline.experts.sigmoid = outline.experts.corrected = true;
       outline.experts.groups = 4;
       outline.experts.groups_chosen = 2;
       outline.experts.factor = 2.5;
       outline.block_types = {{}, {.experts = true}, {.experts = true}, {.experts = true}};
       options.plan = runtime::ringed_plan;
       options.moe_router_bias_update_rate = 1e-3;
       return options;
     }},
    {"HybridOfExpertsBesideExchangedHeads",
     [] {
       RunOptions options = short_run(4, {"<1,1,4>", "<1,1,4,2>", "<1,2,2>"});
       model::Outline& outline = options.model;
       outline.recurrent = {.key_heads = 6,
                            .value_heads = 12,
                            .key_width = 3,
                            .value_width = 4,
                            .convolution = 4,
                            .by_key_head = true};
       outline.experts = {.count = 6,
                          .per_token = 2,
                          .hidden = 7,
                          .normalised = true,
                          .shared_hidden = 12,
                          .shared_gate = true};
       outline.qk_norm = model::QkNorm::kEachHead;
       outline.norm_offset = 1.0;
       outline.gated = true;
       outline.rotated = 2;
       outline.tie_embeddings = true;
       outline.block_types = {
           {.experts = true, .recurrent = true}, {.experts = true}, {.recurrent = true}, {.experts = true}};
       options.plan = runtime::ringed_plan;
       options.exchanges = {{.head_lanes = 2}, {.head_lanes = 1}};
       return options;
     }},
    {"SumsOfSharedGradientsInFourBits",
     [] {
       RunOptions options = short_run(4, {"<1,1,4,4>", "4x<1,1,1>"});
       options.model = runtime::coded_outline();
       options.dtype = comm::DType::kFloat32;
       options.codecs.push = {strategy::Codec::kInt8, strategy::Codec::kInt4};
       return options;
     }},
};
INSTANTIATE_TEST_SUITE_P(DeviceStandInMore, Features, testing::ValuesIn(kMore), name_of_case);

}  // namespace
}  // namespace sluice::stand_in
