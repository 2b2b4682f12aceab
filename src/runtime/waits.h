// Time that a rank's computation waited, by cause.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace sluice::runtime {

enum class WaitCause : uint8_t {
  kPull,    // for parameters
  kPush,    // for gradients on their way to their owners
  kStage,   // for rows of the stage before or behind
  kLanes,   // for keys, values, heads or states of other lanes, inside cells
  kFsdp,    // for FSDP all-gathers and reduce-scatters, inside cells
  kTensor,  // for the other ranks of a tensor-parallel group, inside cells
  kCopies,  // for activations from host memory, or for memory that offloading frees
  kEnd,     // for all ranks' sums at the end, and for other unfinished work then
};
inline constexpr size_t kWaitCauses = 8;

// Nanoseconds.
class Waits {
 public:
  int64_t& operator[](WaitCause cause) { return by_cause_[static_cast<size_t>(cause)]; }
  int64_t operator[](WaitCause cause) const { return by_cause_[static_cast<size_t>(cause)]; }
  Waits& operator+=(const Waits& other) { return add(other, 1); }
  Waits& operator-=(const Waits& other) { return add(other, -1); }
  int64_t sum() const { return std::accumulate(by_cause_.begin(), by_cause_.end(), int64_t{0}); }

 private:
  Waits& add(const Waits& other, int64_t times) {
    for (size_t cause = 0; cause < kWaitCauses; ++cause) by_cause_[cause] += times * other.by_cause_[cause];
    return *this;
  }

  std::array<int64_t, kWaitCauses> by_cause_{};
};

}  // namespace sluice::runtime
