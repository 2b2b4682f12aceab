#include "ops/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <malloc.h>

#ifdef SLUICE_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#endif

#include "ops/memory_account.h"

namespace sluice::ops {

namespace {

// Forwards every request and counts the bytes that the heap really gave. A block's context is its data
// pointer, and the heap knows its size, as c10's raw_allocate and raw_deallocate require: oneDNN calls them
// for its BF16 products.
class CountingAllocator final : public c10::Allocator {
 public:
  // REQUIRES: `under` takes its blocks from malloc and gives them back by its raw deleter, as c10's own does.
  explicit CountingAllocator(c10::Allocator& under) : under_deleter_(under.raw_deleter()), under_(under) {
    TORCH_INTERNAL_ASSERT(under_deleter_ != nullptr, "the host allocator has no raw deleter");
  }

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr block = under_.allocate(bytes);
    account_.take(heap_bytes(block.get()));
    const bool own = block.compare_exchange_deleter(under_deleter_, raw_deleter());
    TORCH_INTERNAL_ASSERT(own, "the host allocator gave a block with a deleter that is not its own");
    return block;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  MemoryAccount& account() { return account_; }

 private:
  static int64_t heap_bytes(void* data) { return static_cast<int64_t>(malloc_usable_size(data)); }
  static void give_back(void* data);

  c10::DeleterFnPtr under_deleter_;
  c10::Allocator& under_;
  MemoryAccount account_;
};

// libtorch has one allocator for all of a process's host tensors, and never takes one down.
CountingAllocator*& host_allocator() {
  static CountingAllocator* allocator = nullptr;
  return allocator;
}

// A raw deleter gets nothing but the block.
void CountingAllocator::give_back(void* data) {
  CountingAllocator& allocator = *host_allocator();
  allocator.account_.give_back(heap_bytes(data));
  allocator.under_deleter_(data);
}

#ifdef SLUICE_CUDA
// Active blocks include those that no tensor uses any more but that a stream has yet to finish with: they are
// not available to others.
c10::CachingAllocator::Stat active(c10::Device device) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  return stats.active_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
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
  if (device.is_cuda()) return active(device).current;
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

int64_t untracked_device_bytes([[maybe_unused]] c10::Device device) {
#ifdef SLUICE_CUDA
  if (device.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device);
    size_t free_bytes = 0, total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) return 0;
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return static_cast<int64_t>(total_bytes - free_bytes) - stats.reserved_bytes[all].current;
  }
#endif
  return 0;
}

int64_t peak_tensor_bytes(c10::Device device) {
#ifdef SLUICE_CUDA
  if (device.is_cuda()) return active(device).peak;
#endif
  if (!device.is_cpu() || host_allocator() == nullptr) return 0;
  return host_allocator()->account().peak_bytes();
}

AllocatorUse allocator_use([[maybe_unused]] c10::Device device) {
#ifdef SLUICE_CUDA
  if (device.is_cuda()) {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return {stats.reserved_bytes[all].peak, stats.num_alloc_retries};
  }
#endif
  return {};
}

}  // namespace sluice::ops
