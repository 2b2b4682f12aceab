// How a rank's machine is, from what its system counts: who is slow may be so because something else runs
// there, because memory is short, or because its GPU is hot.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

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
  // `least`: between two looks.
  explicit MachineWatch(const std::string& pci_bus_id = "",
                        std::chrono::steady_clock::duration least = std::chrono::seconds(1));
  ~MachineWatch();

  // Puts the machine's figures into `sample`: of the time since they were looked at before, which is a second
  // ago at least; until then those stay.
  void take(Sample& sample);

 private:
  void look();

  Sample newest_;
  MachineCounts before_ = machine_counts();
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  const std::chrono::steady_clock::duration least_;
  std::unique_ptr<GpuHealth> gpu_;  // null without one, or without NVML
};

}  // namespace sluice::watch
