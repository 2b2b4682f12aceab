// Accounts for one memory: the bytes held now, and the peak.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace sluice::ops {

// Thread-safe: streams allocate and free concurrently.
class MemoryAccount {
 public:
  void take(int64_t bytes) {
    const int64_t now = held_bytes_.fetch_add(bytes) + bytes;
    int64_t peak = peak_bytes_.load();
    while (now > peak && !peak_bytes_.compare_exchange_weak(peak, now)) {
    }
  }
  void give_back(int64_t bytes) { held_bytes_.fetch_sub(bytes); }

  // Begins a new peak at the bytes held now. REQUIRES: no allocation meanwhile.
  void reset_peak() { peak_bytes_.store(held_bytes_.load()); }

  int64_t held_bytes() const { return held_bytes_.load(); }
  int64_t peak_bytes() const { return peak_bytes_.load(); }

 private:
  std::atomic<int64_t> held_bytes_{0};
  std::atomic<int64_t> peak_bytes_{0};
};

}  // namespace sluice::ops
