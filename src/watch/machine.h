// How a rank's machine is, from what its system counts: who is slow may be so because something else runs
// there, because memory is short, or because its GPU is hot.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "watch/figures.h"

namespace sluice::watch {

class GpuHealth;  // watch/gpu_health.h

// What a process has been given since it began, and how much it holds; Sample::kUnknown where the system does
// not say.
struct MachineCounts {
  int64_t processor_ns = 0;
  int64_t run_delay_ns = 0;
  int64_t major_faults = 0;
  int64_t resident_bytes = 0;
  int64_t disk_bytes = 0;
  int64_t network_bytes = 0;
};
// Of this process, from getrusage and /proc: some tens of microseconds.
MachineCounts machine_counts();

// Not thread-safe.
class MachineWatch {
 public:
  // `pci_bus_id`: of the GPU that the rank computes on ("0000:3b:00.0"); empty: none.
  explicit MachineWatch(const std::string& pci_bus_id = "");
  ~MachineWatch();

  // Since the call before, or it was made: puts the machine's figures into `sample`. What has no rate, a
  // clock or a temperature, is asked for at most once a second.
  void take(Sample& sample);

 private:
  MachineCounts before_ = machine_counts();
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::unique_ptr<GpuHealth> gpu_;  // null without one, or without NVML
};

}  // namespace sluice::watch
