#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
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

RunOptions gpu_run(int world_size, std::vector<std::string> strategies) {
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

// The run on GPU 0, whose ranks talk through the host, against one rank in FP64 on the CPU.
void expect_gpu_as_cpu(RunOptions options, double tolerance) {
  if (ops::gpu_count() == 0) GTEST_SKIP() << "no GPU";
  RunOptions reference = gpu_run(1, {"<1,1,1>"});
  reference.shape = options.shape;
  const RunRecord on_cpu = run_in_process(reference);
  options.device = c10::Device(c10::kCUDA, 0);
  const RunRecord on_gpu = run_in_process(options);
  ASSERT_EQ(on_gpu.losses.size(), on_cpu.losses.size());
  for (size_t step = 0; step < on_cpu.losses.size(); ++step) {
    expect_near(on_gpu.losses[step], on_cpu.losses[step], tolerance);
    expect_near(on_gpu.gradient_norms[step], on_cpu.gradient_norms[step], 10 * tolerance);
  }
}

constexpr double kDoubleTolerance = 1e-10;
constexpr double kBFloat16Tolerance = 2e-2;

TEST(DeviceExecutor, OneRankTrainsAsOnTheCpu) {
  expect_gpu_as_cpu(gpu_run(1, {"<1,1,1>"}), kDoubleTolerance);
}

TEST(DeviceExecutor, SwitchingStrategiesTrainAsOneRankOnTheCpu) {
  expect_gpu_as_cpu(gpu_run(4, {"<1,2,1> + <2,1,1>", "4x<1,1,1>", "<2,2,1>"}), kDoubleTolerance);
}

TEST(DeviceExecutor, RingsTrainAsOneRankOnTheCpu) {
  RunOptions options = gpu_run(4, {"<1,1,4>", "<2,1,2>", "<1,2,2>"});
  options.plan = ringed_plan;
  expect_gpu_as_cpu(options, kDoubleTolerance);
}

TEST(DeviceExecutor, RecomputingAndOffloadingTrainsAsOneRankOnTheCpu) {
  RunOptions options = gpu_run(4, {"<1,2,1> + <2,1,1>", "<1,1,4>"});
  options.policies = {
      {.recompute = true}, {.offload_permille = 700}, {.recompute = true, .offload_permille = 1000}};
  expect_gpu_as_cpu(options, kDoubleTolerance);
}

TEST(DeviceExecutor, BFloat16TrainsNearlyAsDoubleOnTheCpu) {
  RunOptions options = gpu_run(4, {"4x<1,1,1>", "<2,2,1>", "<1,1,4>"});
  options.dtype = comm::DType::kBFloat16;
  options.policies = {{}, {.recompute = true}, {.offload_permille = 500}};
  expect_gpu_as_cpu(options, kBFloat16Tolerance);
}

}  // namespace
}  // namespace sluice::runtime
