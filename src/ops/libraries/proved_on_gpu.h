// Libraries that are used only on GPUs on which they passed a check. Internal to src/ops.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace sluice::ops {

// Remembers the fault of something on each GPU; an empty fault means that the check passed.
// Thread-safe.
class ProvedOnGpu {
 public:
  using Find = std::function<std::string(const c10::Device&)>;
  explicit ProvedOnGpu(Find find) : find_(std::move(find)) {}

  // Runs the check at the first call for the GPU; `find` returns the fault ("" if none) or throws it.
  bool on(const c10::Device& gpu) {
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = fault_by_gpu_.try_emplace(gpu.index());
    if (is_new) {
      try {
        known->second = find_(gpu);
      } catch (const std::exception& error) {
        known->second = error.what();
      }
    }
    return known->second.empty();
  }

  // For people: the fault on some GPU; "" while none is known.
  std::string fault() {
    const std::lock_guard lock(mutex_);
    for (const auto& [gpu, fault] : fault_by_gpu_) {
      if (!fault.empty()) return fault;
    }
    return "";
  }
  bool was_asked() {
    const std::lock_guard lock(mutex_);
    return !fault_by_gpu_.empty();
  }

 private:
  Find find_;
  std::mutex mutex_;
  std::map<int, std::string> fault_by_gpu_;
};

}  // namespace sluice::ops
