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

// The same run on GPU 0, whose ranks talk through the host, and on the CPU.
void expect_gpu_as_cpu(int world_size, std::vector<std::string> strategies) {
  if (ops::gpu_count() == 0) GTEST_SKIP() << "no GPU";
  RunOptions options;
  options.world_size = world_size;
  options.gpus_per_node = 2;
  options.strategies = std::move(strategies);
  options.steps = 6;
  const RunRecord on_cpu = run_in_process(options);
  options.device = c10::Device(c10::kCUDA, 0);
  const RunRecord on_gpu = run_in_process(options);
  ASSERT_EQ(on_gpu.losses.size(), on_cpu.losses.size());
  for (size_t step = 0; step < on_cpu.losses.size(); ++step) {
    EXPECT_NEAR(on_gpu.losses[step], on_cpu.losses[step], 1e-10 * std::abs(on_cpu.losses[step]));
    EXPECT_NEAR(on_gpu.gradient_norms[step], on_cpu.gradient_norms[step], 1e-9 * on_cpu.gradient_norms[step]);
  }
}

TEST(DeviceExecutor, OneRankTrainsAsOnTheCpu) { expect_gpu_as_cpu(1, {"<1,1,1>"}); }
TEST(DeviceExecutor, SwitchingStrategiesTrainAsOnTheCpu) {
  expect_gpu_as_cpu(4, {"<1,2,1> + <2,1,1>", "4x<1,1,1>", "<2,2,1>"});
}

}  // namespace
}  // namespace sluice::runtime
