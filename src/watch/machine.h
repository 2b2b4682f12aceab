// The state of a rank's machine from its system's counters. A rank may be slow because other programs run
// there, because memory is short, or because its GPU is hot.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "watch/figures.h"

namespace sluice::watch {

class GpuHealth;  // watch/gpu_health.h

// Resources that a process has used since it began, and the memory that it holds; Sample::kUnknown where the
// system does not report one.
struct MachineCounts {
  int64_t processor_ns = 0;
  int64_t run_delay_ns = 0;
  int64_t major_faults = 0;
  int64_t resident_bytes = 0;
  int64_t disk_bytes = 0;
  int64_t network_bytes = 0;
};
// Counters of this process from getrusage and /proc; takes some tens of microseconds.
MachineCounts machine_counts();

// Not thread-safe.
class MachineWatch {
 public:
  // `pci_bus_id` names the rank's GPU ("0000:3b:00.0"); empty: none.
  // `least` is the minimum time between two looks.
  explicit MachineWatch(const std::string& pci_bus_id = "",
                        std::chrono::steady_clock::duration least = std::chrono::seconds(1));
  ~MachineWatch();

  // Stores the machine's figures in `sample`: those of the time between the last two looks. It looks again if
  // `least` has passed since.
  void take(Sample& sample);

 private:
  void look();

  Sample newest_;
  MachineCounts before_ = machine_counts();
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  const std::chrono::steady_clock::duration least_;
  std::unique_ptr<GpuHealth> gpu_;  // null without a GPU or NVML
};

}  // namespace sluice::watch
