#include "ops/tensor_memory.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::ops {
namespace {

constexpr size_t kBytes = 100'000;

// The contract of c10::Allocator, whichever of its parts this processor's kernels use.
class TensorMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    count_host_tensors();
    held_before_ = held_tensor_bytes(c10::kCPU);
  }
  int64_t held() const { return held_tensor_bytes(c10::kCPU) - held_before_; }

  c10::Allocator& allocator() const { return *c10::GetCPUAllocator(); }

 private:
  int64_t held_before_ = 0;
};

TEST_F(TensorMemory, BlockIsItsOwnContextAndHasTheRawDeleter) {
  const c10::DataPtr block = allocator().allocate(kBytes);
  EXPECT_EQ(block.get(), block.get_context());
  EXPECT_EQ(block.get_deleter(), allocator().raw_deleter());
  EXPECT_TRUE(allocator().is_simple_data_ptr(block));
  EXPECT_EQ(block.device(), c10::Device(c10::kCPU));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block.get()) % 64, 0U);
}

TEST_F(TensorMemory, RawBlocksAreCountedUntilTheyAreGivenBack) {
  void* data = allocator().raw_allocate(kBytes);
  std::memset(data, 1, kBytes);
  EXPECT_GE(held(), static_cast<int64_t>(kBytes));
  allocator().raw_deallocate(data);
  EXPECT_EQ(held(), 0);
}

TEST_F(TensorMemory, RawBlocksAndDataPtrsMayChangePlaces) {
  c10::DataPtr block = allocator().allocate(kBytes);
  allocator().raw_deallocate(block.release_context());
  EXPECT_EQ(held(), 0);
  void* data = allocator().raw_allocate(kBytes);
  { const c10::DataPtr owner(data, data, allocator().raw_deleter(), c10::kCPU); }
  EXPECT_EQ(held(), 0);
}

TEST_F(TensorMemory, CloneHasEqualBytes) {
  const c10::DataPtr block = allocator().allocate(kBytes);
  std::memset(block.get(), 7, kBytes);
  const c10::DataPtr copy = allocator().clone(block.get(), kBytes);
  EXPECT_EQ(std::memcmp(copy.get(), block.get(), kBytes), 0);
  EXPECT_GE(held(), 2 * static_cast<int64_t>(kBytes));
}

TEST_F(TensorMemory, NothingTakesNothing) {
  const c10::DataPtr block = allocator().allocate(0);
  allocator().raw_deallocate(allocator().raw_allocate(0));
  EXPECT_EQ(held(), 0);
}

TEST_F(TensorMemory, BlocksMayEndOnAnotherThread) {
  std::vector<c10::DataPtr> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(allocator().allocate(kBytes));
  std::thread([given = std::move(blocks)] {}).join();
  EXPECT_EQ(held(), 0);
}

TEST_F(TensorMemory, PeakIsTheMostThatTensorsHeld) {
  reset_peak_tensor_bytes(c10::kCPU);
  const int64_t before = peak_tensor_bytes(c10::kCPU);
  { const at::Tensor tensor = at::empty({1000, 1000}, at::kFloat); }
  const int64_t tensor_bytes = 4'000'000;
  EXPECT_GE(peak_tensor_bytes(c10::kCPU) - before, tensor_bytes);
  EXPECT_LE(peak_tensor_bytes(c10::kCPU) - before, tensor_bytes + 8192);
  EXPECT_EQ(held(), 0);
}

// On processors with BF16 instructions, oneDNN computes these and allocates raw buffers.
TEST_F(TensorMemory, ProductsOfEveryTypeRun) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    const at::Tensor product = at::mm(at::ones({64, 128}, type), at::ones({128, 96}, type));
    EXPECT_EQ(product[3][5].item<double>(), 128) << type;
  }
}

}  // namespace
}  // namespace sluice::ops
