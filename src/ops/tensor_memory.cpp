#include "ops/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#ifdef SLUICE_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

#include <memory>

#include "ops/memory_account.h"

namespace sluice::ops {

namespace {

// Passes every request on and books it; what it hands out books itself back.
class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator& under) : under_(under) {}

  c10::DataPtr allocate(size_t bytes) override {
    auto block = std::make_unique<Block>(under_.allocate(bytes), *this, static_cast<int64_t>(bytes));
    account_.take(block->bytes);
    void* data = block->data.get();
    const c10::Device device = block->data.device();
    return {data, block.release(), &give_back, device};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  MemoryAccount& account() { return account_; }

 private:
  struct Block {
    c10::DataPtr data;
    CountingAllocator& owner;
    int64_t bytes = 0;
  };
  static void give_back(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    block->owner.account_.give_back(block->bytes);
  }

  c10::Allocator& under_;
  MemoryAccount account_;
};

// libtorch has one allocator for all of a process's host tensors, and never takes one down.
CountingAllocator*& host_allocator() {
  static CountingAllocator* allocator = nullptr;
  return allocator;
}

#ifdef SLUICE_CUDA
c10::CachingAllocator::Stat allocated(c10::Device device) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}
#endif

}  // namespace

void count_host_tensors() {
  if (host_allocator() != nullptr) return;
  static CountingAllocator allocator(*c10::GetCPUAllocator());
  host_allocator() = &allocator;
  c10::SetCPUAllocator(&allocator, 1);
}

int64_t held_tensor_bytes(c10::Device device) {
#ifdef SLUICE_CUDA
  if (device.is_cuda()) return allocated(device).current;
#endif
  if (!device.is_cpu() || host_allocator() == nullptr) return 0;
  return host_allocator()->account().held_bytes();
}

void reset_peak_tensor_bytes(c10::Device device) {
#ifdef SLUICE_CUDA
  if (device.is_cuda()) return c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
#endif
  if (device.is_cpu() && host_allocator() != nullptr) host_allocator()->account().reset_peak();
}

int64_t peak_tensor_bytes(c10::Device device) {
#ifdef SLUICE_CUDA
  if (device.is_cuda()) return allocated(device).peak;
#endif
  if (!device.is_cpu() || host_allocator() == nullptr) return 0;
  return host_allocator()->account().peak_bytes();
}

}  // namespace sluice::ops
