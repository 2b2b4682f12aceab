// The graphs that cuDNN can run on GPUs that are not here: it finds engines from a description of the GPU.
// Their results are compared by device_ops_test.cpp if there is a GPU.
#ifdef SLUICE_CUDNN
#include "ops/libraries/cudnn_graph.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "ops/planned_sizes.h"

namespace sluice::ops::cudnn {
namespace {

struct Gpu {
  const char* name;
  int architecture;
  int multiprocessors;
};
constexpr Gpu kHopper{"NVIDIA H100 80GB HBM3", 90, 132};
constexpr Gpu kBlackwell{"NVIDIA B200", 100, 148};
constexpr Gpu kAmpere{"NVIDIA A100-SXM4-80GB", 80, 108};

// The keys are cuDNN 9.19's own.
std::string properties_of(const Gpu& gpu) {
  const std::string shared = gpu.architecture == 80 ? "166912" : "232448";
  return R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
         R"("warpSize":32,"maxSharedMemoryPerBlock":49152,"reservedSharedMemoryPerBlock":1024,)"
         R"("maxRegistersPerSM":65536,"pciDeviceId":0,"isTccDriver":0,"maxCtasPerSM":32,"smClockRateKHz":1980000,)"
         R"("memClockRateKHz":2619000,"l2CacheSize":52428800,"driverVer":13000,"maxThreadsPerBlock":1024,)"
         R"("maxThreadsPerSM":2048,"supportCoopLaunch":1,"totalGlobalMem":85000000000,"cudaDeviceId":0,)"
         R"("deviceName":")" +
         std::string(gpu.name) + R"(","deviceVer":)" + std::to_string(10 * gpu.architecture) +
         R"(,"multiProcessorCount":)" + std::to_string(gpu.multiprocessors) +
         R"(,"maxSharedMemoryPerBlockOptin":)" + shared + "}";
}

GraphShape shape_of(Direction direction) {
  return {.direction = direction,
          .sequences = 8,
          .longest = 4096,
          .longest_keys = 4096,
          .rows = 16'384,
          .key_rows = 16'384,
          .heads = 32,
          .kv_heads = 8,
          .dimensions = 128,
          .value_dimensions = 128,
          .q_stride = 48 * 128,
          .kv_stride = 48 * 128,
          .scale = 0.088F};
}

// The reason why cuDNN cannot be asked; "" if it can.
std::string missing() {
  if (!load_fault().empty()) return load_fault();
  if (library_version() / 100 != 919) return "this cuDNN may want other properties of GPUs than 9.19's";
  // A machine without a driver may have its stub, in CUDA's toolkit.
  for (const char* driver : {"libcuda.so.1", SLUICE_CUDA_STUBS "/libcuda.so"}) {
    if (::dlopen(driver, RTLD_NOW | RTLD_GLOBAL) != nullptr) return {};
  }
  return "no driver, nor its stub";
}

std::string fault_of(const GraphShape& shape, const Gpu& gpu) {
  return support_fault(shape, gpu.architecture, properties_of(gpu));
}

class CudnnGraph : public testing::TestWithParam<Direction> {
 protected:
  void SetUp() override {
    if (!missing().empty()) GTEST_SKIP() << missing();
  }
};

TEST_P(CudnnGraph, RunsOnHopperAndBlackwell) {
  for (const Gpu& gpu : {kHopper, kBlackwell}) {
    for (const int64_t dimensions : {64, 128}) {
      GraphShape shape = shape_of(GetParam());
      shape.dimensions = shape.value_dimensions = dimensions;
      shape.q_stride = shape.kv_stride = 48 * dimensions;
      EXPECT_EQ(fault_of(shape, gpu), "") << gpu.name << ", " << dimensions;
    }
  }
}

TEST_P(CudnnGraph, RunsOneLongSequenceWithMatricesOfItsOwn) {
  GraphShape shape = shape_of(GetParam());
  shape.sequences = 1;
  shape.longest = shape.longest_keys = shape.rows = shape.key_rows = 131'072;
  shape.kv_heads = 32;
  shape.q_stride = shape.kv_stride = 32 * 128;
  EXPECT_EQ(fault_of(shape, kHopper), "");
}

TEST_P(CudnnGraph, RunsWindowsToOneSideAndToBothAndEncoders) {
  for (const Gpu& gpu : {kHopper, kBlackwell}) {
    for (const Mask mask : {Mask{.causal = true, .window = 128}, Mask{.causal = false, .window = 128},
                            Mask{.causal = false, .window = 0}}) {
      GraphShape shape = shape_of(GetParam());
      shape.mask = mask;
      EXPECT_EQ(fault_of(shape, gpu), "") << gpu.name << ", " << mask.causal << ", " << mask.window;
    }
  }
}

TEST_P(CudnnGraph, RunsInOneOrder) {
  for (const Gpu& gpu : {kHopper, kBlackwell}) {
    for (const int64_t window : {0, 128}) {
      GraphShape shape = shape_of(GetParam());
      shape.deterministic = GetParam() == Direction::kBackward;
      shape.mask.window = window;
      EXPECT_EQ(fault_of(shape, gpu), "") << gpu.name << ", " << window;
    }
  }
}

// All blocks of a ring's step at once: each has queries and keys of its own number.
TEST_P(CudnnGraph, RunsBlocksOfQueriesAndKeys) {
  for (const Gpu& gpu : {kHopper, kBlackwell}) {
    GraphShape shape = shape_of(GetParam());
    shape.mask.causal = false;
    shape.longest_keys = 8192;
    shape.key_rows = 32'768;
    shape.kv_stride = 16 * 128;
    EXPECT_EQ(fault_of(shape, gpu), "") << gpu.name;
  }
}

// Backward of such heads is Hopper's alone.
TEST_P(CudnnGraph, RunsWideHeads) {
  for (const int64_t dimensions : {80, 96, 112, 256}) {
    GraphShape shape = shape_of(GetParam());
    shape.dimensions = shape.value_dimensions = dimensions;
    shape.q_stride = shape.kv_stride = 48 * dimensions;
    EXPECT_EQ(fault_of(shape, kHopper), "") << dimensions;
    if (dimensions > 128 && GetParam() == Direction::kBackward) {
      EXPECT_NE(fault_of(shape, kBlackwell), "") << dimensions;
    } else {
      EXPECT_EQ(fault_of(shape, kBlackwell), "") << dimensions;
    }
  }
}

// DeepSeek-V3's heads lie 192 elements apart, values, too; rings ask for blocks of them.
TEST_P(CudnnGraph, RunsKeysOf192AndValuesOf128) {
  for (const Gpu& gpu : {kHopper, kBlackwell}) {
    for (const bool causal : {true, false}) {
      for (const bool deterministic : {false, true}) {
        GraphShape shape = shape_of(GetParam());
        shape.heads = shape.kv_heads = 128;
        shape.dimensions = 192;
        shape.q_stride = shape.kv_stride = 3 * 128 * 192;
        shape.mask.causal = causal;
        shape.deterministic = deterministic && GetParam() == Direction::kBackward;
        EXPECT_EQ(fault_of(shape, gpu), "") << to_text(shape) << ", " << gpu.name;
      }
    }
  }
}

// The sizes that are planned before a run's first step.
TEST_P(CudnnGraph, RunsAllPlannedSizes) {
  for (const PlannedSizes& sizes : all_planned_sizes(GetParam(), {.rows = 65'536, .longest = 32'768})) {
    GraphShape shape = shape_of(GetParam());
    shape.sequences = sizes.sequences;
    shape.longest = sizes.longest;
    shape.longest_keys = sizes.longest_keys;
    shape.rows = sizes.rows;
    shape.key_rows = sizes.key_rows;
    EXPECT_EQ(fault_of(shape, kHopper), "") << to_text(shape);
  }
}

// Keys in pages of 32 rows, of a cache that has keys and values side by side.
GraphShape shape_of_pages(int64_t dimensions) {
  GraphShape shape = shape_of(Direction::kForward);
  shape.dimensions = shape.value_dimensions = dimensions;
  shape.q_stride = 48 * dimensions;
  shape.kv_stride = 16 * dimensions;
  shape.rows = shape.key_rows = 0;
  shape.pages = 1000;
  shape.page_rows = 32;
  return shape;
}

TEST(CudnnGraphOfPages, RunsAllPlannedSizesOnEachGpu) {
  if (!missing().empty()) GTEST_SKIP() << missing();
  for (const PlannedSizes& sizes : all_planned_page_sizes({.rows = 8192, .longest = 8192})) {
    GraphShape shape = shape_of_pages(128);
    shape.sequences = sizes.sequences;
    shape.longest = sizes.longest;
    shape.longest_keys = sizes.longest_keys;
    for (const Gpu& gpu : {kHopper, kBlackwell, kAmpere})
      EXPECT_EQ(fault_of(shape, gpu), "") << to_text(shape) << ", " << gpu.name;
  }
}

TEST(CudnnGraphOfPages, RunsWindowsAndHeadsOfEachWidth) {
  if (!missing().empty()) GTEST_SKIP() << missing();
  for (const int64_t dimensions : {64, 80, 96, 112, 256}) {
    for (const int64_t window : {0, 4096}) {
      GraphShape shape = shape_of_pages(dimensions);
      shape.mask.window = window;
      for (const Gpu& gpu : {kHopper, kBlackwell, kAmpere})
        EXPECT_EQ(fault_of(shape, gpu), "") << to_text(shape) << ", " << gpu.name;
    }
  }
}

TEST_P(CudnnGraph, HeadsThatAreNoMultipleAreRefused) {
  GraphShape shape = shape_of(GetParam());
  shape.kv_heads = 5;
  EXPECT_NE(fault_of(shape, kHopper), "");
}

// On Ampere cuDNN refuses packed rows backward, so flash attention stays in use.
TEST(CudnnGraphOnAmpere, BackwardOfPackedRowsIsRefused) {
  if (!missing().empty()) GTEST_SKIP() << missing();
  EXPECT_NE(fault_of(shape_of(Direction::kBackward), kAmpere), "");
}

INSTANTIATE_TEST_SUITE_P(Directions, CudnnGraph, testing::Values(Direction::kForward, Direction::kBackward),
                         [](const auto& info) {
                           return info.param == Direction::kForward ? "Forward" : "Backward";
                         });

}  // namespace
}  // namespace sluice::ops::cudnn
#endif
