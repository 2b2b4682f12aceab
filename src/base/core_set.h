// The cores on which processes may run.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace sluice::base {

// Trivially copyable, so that ranks can exchange it.
struct CoreSet {
  std::array<uint64_t, 16> ids{};  // bit i%64 of word i/64: core i
  double processors = 0;           // processor time allowed by control groups; 0: no limit
};

// This process's.
CoreSet own_cores();

// Cores that processes of one machine may use together, at least 1: those that any of them may run on, and no
// more than the most processor time that a control group allows one of them. Processes bound to cores of
// their own have as many as there are processes.
int cores_together(std::span<const CoreSet> processes);

}  // namespace sluice::base
