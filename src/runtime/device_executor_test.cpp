#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "model/tuning.h"
#include "ops/device.h"
#include "runtime/make_executor.h"
#include "runtime/test_cluster.h"

namespace sluice::runtime {
namespace {

TEST(MakeExecutor, ProcessorGetsAHostExecutor) {
  const auto executor = make_executor(c10::kCPU, {});
  EXPECT_NE(dynamic_cast<HostExecutor*>(executor.get()), nullptr);
}

#ifndef SLUICE_CUDA
TEST(MakeExecutor, GpuWithoutCudaIsTheUsersMistake) {
  EXPECT_THROW(make_executor({c10::kCUDA, 0}, {}), base::InputError);
}
#endif

RunOptions short_run(int world_size, std::vector<std::string> strategies) {
  RunOptions options;
  options.world_size = world_size;
  options.gpus_per_node = 2;
  options.strategies = std::move(strategies);
  options.steps = 6;
  return options;
}

void expect_near(double actual, double expected, double tolerance) {
  EXPECT_NEAR(actual, expected, tolerance * std::abs(expected));
}

// The run against one rank in FP64 on the CPU.
void expect_as_one_rank(const RunOptions& options, double tolerance) {
  RunOptions reference = short_run(1, {"<1,1,1>"});
  reference.shape = options.shape;
  reference.codecs.pull = options.codecs.pull;
  reference.moments = options.moments;
  reference.balance_loss = options.balance_loss;
  reference.loss_one_in = options.loss_one_in;
  const RunRecord expected = run_in_process(reference), actual = run_in_process(options);
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    expect_near(actual.losses[step], expected.losses[step], tolerance);
    expect_near(actual.gradient_norms[step], expected.gradient_norms[step], 10 * tolerance);
  }
}

// On GPU 0, whose ranks talk through the host.
void expect_gpu_as_cpu(RunOptions options, double tolerance) {
  if (ops::gpu_count() == 0) GTEST_SKIP() << "no GPU";
  options.device = c10::Device(c10::kCUDA, 0);
  expect_as_one_rank(options, tolerance);
}

constexpr double kDoubleTolerance = 1e-10;
constexpr double kBFloat16Tolerance = 2e-2;
constexpr double kCodedTolerance =
    5e-2;  // of what is rounded to few bits, where a unit in the last place decides

TEST(DeviceExecutor, OneRankTrainsAsOnTheCpu) {
  expect_gpu_as_cpu(short_run(1, {"<1,1,1>"}), kDoubleTolerance);
}

TEST(DeviceExecutor, SwitchingStrategiesTrainAsOneRankOnTheCpu) {
  expect_gpu_as_cpu(short_run(4, {"<1,2,1> + <2,1,1>", "4x<1,1,1>", "<2,2,1>"}), kDoubleTolerance);
}

TEST(DeviceExecutor, RingsTrainAsOneRankOnTheCpu) {
  RunOptions options = short_run(4, {"<1,1,4>", "<2,1,2>", "<1,2,2>"});
  options.plan = ringed_plan;
  expect_gpu_as_cpu(options, kDoubleTolerance);
}

TEST(DeviceExecutor, RecomputingAndOffloadingTrainsAsOneRankOnTheCpu) {
  RunOptions options = short_run(4, {"<1,2,1> + <2,1,1>", "<1,1,4>"});
  options.policies = {{.recompute_permille = 1000},
                      {.offload_permille = 700},
                      {.recompute_permille = 1000, .offload_permille = 1000}};
  expect_gpu_as_cpu(options, kDoubleTolerance);
}

// What a run can have beside strategies, each alone.
struct Feature {
  const char* name;
  RunOptions (*run)();
  double tolerance = kDoubleTolerance;
};
void PrintTo(const Feature& feature, std::ostream* stream) { *stream << feature.name; }

const Feature kFeatures[] = {
    {"SharedParameters",
     [] {
       RunOptions options = short_run(4, {"<1,1,4,4>", "<1,1,4,2>", "<1,2,2,2>"});
       options.plan = ringed_plan;
       return options;
     }},
    {"ExchangedHeads",
     [] {
       RunOptions options = short_run(4, {"<1,1,4>", "<2,1,2>"});
       options.plan = ringed_plan;
       options.exchanges = {{.head_lanes = 0}};
       return options;
     }},
    {"NestedExchanges",
     [] {
       RunOptions options = short_run(4, {"<1,1,4>", "<1,1,4,4>"});
       options.plan = ringed_plan;
       options.exchanges = {{.head_lanes = 2}};
       return options;
     }},
    {"WindowsAndCaps",
     [] {
       RunOptions options = short_run(4, {"<1,1,4>", "<2,2,1>"});
       options.plan = ringed_plan;
       options.shape.window = 7;
       options.shape.block_types = {{.windowed = true}, {}, {.windowed = true}, {}};
       options.shape.score_cap = 0.01;
       options.shape.logit_cap = 0.2;
       return options;
     }},
    {"Adapters",
     [] {
       RunOptions options = short_run(4, {"<1,2,1> + <2,1,1>", "<1,1,4,2>"});
       model::adapt(options.shape, {.rank = 2, .alpha = 3, .targets = {"q_proj", "down_proj"}});
       return options;
     }},
    {"FrozenParts",
     [] {
       RunOptions options = short_run(4, {"<1,2,1> + <2,1,1>", "4x<1,1,1>"});
       model::freeze(options.shape, {"model.embed_tokens", "model.layers.0.*", "*.mlp.down_proj*"});
       return options;
     }},
    {"MaskedHead",
     [] {
       RunOptions options = short_run(4, {"<2,2,1>", "<1,1,4>"});
       options.loss_one_in = 5;
       return options;
     }},
    {"Experts",
     [] {
       RunOptions options = short_run(4, {"<1,2,1> + <2,1,1>", "4x<1,1,1>", "<1,1,4,4>"});
       options.shape.experts = {.count = 5, .per_token = 2, .hidden = 14, .normalised = true};
       return options;
     }},
    {"ExpertsOfASharedOneWithBiases",
     [] {
       RunOptions options = short_run(4, {"<2,1,1> + 2x<1,1,1>", "<1,1,4>"});
       options.plan = ringed_plan;
       options.shape.experts = {
           .count = 6, .per_token = 2, .hidden = 9, .shared_hidden = 7, .shared_gate = true, .biases = true};
       return options;
     }},
    {"DividedExperts",
     [] {
       RunOptions options = short_run(4, {"<1,1,4,4,4>", "<1,1,4,4,2>"});
       options.shape.experts = {.count = 8, .per_token = 2, .hidden = 14, .normalised = true};
       return options;
     }},
    {"GatedDeltaLayersBesideAttention",
     [] {
       RunOptions options = short_run(4, {"<1,1,4>", "<2,2,1>", "<1,1,4,4>"});
       options.plan = packed_plan;
       options.shape.recurrent = {
           .key_heads = 4, .value_heads = 12, .key_width = 4, .value_width = 3, .convolution = 6};
       options.shape.block_types = {{.recurrent = true}, {}, {.recurrent = true}, {.recurrent = true}};
       return options;
     }},
    {"LatentAttention",
     [] {
       RunOptions options = short_run(4, {"<1,1,4>", "<2,2,1>", "<1,1,4,4>"});
       options.plan = ringed_plan;
       options.shape.latent = {.q_rank = 10, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
       options.shape.kv_heads = options.shape.heads;
       options.shape.head_dim = 8;
       options.shape.rotated = 2;
       return options;
     }},
    {"PullInDifferences",
     [] {
       RunOptions options = short_run(4, {"4x<1,1,1>", "4x<1,1,1>", "<2,1,1> + <1,2,1>"});
       options.shape = coded_shape();
       options.codecs.pull = strategy::PullCodec::kInt8Difference;
       return options;
     },
     kCodedTolerance},
    {"PushInEightBits",
     [] {
       RunOptions options = short_run(4, {"4x<1,1,1>", "<2,1,1> + <1,2,1>"});
       options.dtype = comm::DType::kFloat32;
       options.codecs.push = {strategy::Codec::kInt8, strategy::Codec::kInt8};
       return options;
     },
     kCodedTolerance},
    {"MomentsOfEightBits",
     [] {
       RunOptions options = short_run(4, {"<2,2,1>", "4x<1,1,1>"});
       options.shape = coded_shape();
       options.moments = base::MomentFormat::k8Bit;
       return options;
     },
     kCodedTolerance},
};

class RunsOfFeatures : public testing::TestWithParam<Feature> {};
TEST_P(RunsOfFeatures, TrainOnAGpuAsOneRankOnTheCpu) {
  expect_gpu_as_cpu(GetParam().run(), GetParam().tolerance);
}
TEST_P(RunsOfFeatures, TrainOnTheCpuAsOneRank) { expect_as_one_rank(GetParam().run(), GetParam().tolerance); }
INSTANTIATE_TEST_SUITE_P(DeviceExecutor, RunsOfFeatures, testing::ValuesIn(kFeatures),
                         [](const auto& info) { return info.param.name; });

RunOptions bfloat16_run() {
  RunOptions options = short_run(4, {"4x<1,1,1>", "<2,2,1>", "<1,1,4>"});
  options.dtype = comm::DType::kBFloat16;
  options.policies = {{}, {.recompute_permille = 1000}, {.offload_permille = 500}};
  return options;
}

TEST(DeviceExecutor, BFloat16TrainsNearlyAsDoubleOnTheCpu) {
  expect_gpu_as_cpu(bfloat16_run(), kBFloat16Tolerance);
}
TEST(HostExecutor, BFloat16TrainsNearlyAsDouble) { expect_as_one_rank(bfloat16_run(), kBFloat16Tolerance); }

}  // namespace
}  // namespace sluice::runtime
