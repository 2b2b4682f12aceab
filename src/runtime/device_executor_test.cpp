#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "ops/device.h"
#include "runtime/make_executor.h"
#include "runtime/test_cluster.h"
#include "runtime/test_features.h"

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

void expect_near(double actual, double expected, double tolerance) {
  EXPECT_NEAR(actual, expected, tolerance * std::abs(expected));
}

// Compares the run with one rank in FP64 on the CPU.
void expect_as_one_rank(const RunOptions& options, double tolerance) {
  RunOptions reference = short_run(1, {"<1,1,1>"});
  reference.model = options.model;
  reference.codecs.pull = options.codecs.pull;
  reference.moments = options.moments;
  reference.moe_aux_loss_coeff = options.moe_aux_loss_coeff;
  reference.loss_one_in = options.loss_one_in;
  const RunRecord expected = run_in_process(reference), actual = run_in_process(options);
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    expect_near(actual.losses[step], expected.losses[step], tolerance);
    expect_near(actual.gradient_norms[step], expected.gradient_norms[step], 10 * tolerance);
  }
}

// On GPU 0, whose ranks communicate through the host.
void expect_gpu_as_cpu(RunOptions options, double tolerance) {
  if (ops::gpu_count() == 0) GTEST_SKIP() << "no GPU";
  options.device = c10::Device(c10::kCUDA, 0);
  expect_as_one_rank(options, tolerance);
}

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

class RunsOfFeatures : public testing::TestWithParam<Feature> {};
TEST_P(RunsOfFeatures, TrainOnAGpuAsOneRankOnTheCpu) {
  expect_gpu_as_cpu(GetParam().run(), GetParam().tolerance);
}
TEST_P(RunsOfFeatures, TrainOnTheCpuAsOneRank) { expect_as_one_rank(GetParam().run(), GetParam().tolerance); }
INSTANTIATE_TEST_SUITE_P(DeviceExecutor, RunsOfFeatures, testing::ValuesIn(features()),
                         [](const auto& info) { return info.param.name; });

constexpr double kBFloat16Tolerance = 2e-2;

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
