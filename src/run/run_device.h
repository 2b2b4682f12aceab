// The device that a rank computes on, and the memory that plans may use of it: one figure for all ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/json_fwd.h"
#include "ops/attention.h"
#include "profile/device.h"
#include "run/agreed_config.h"
#include "run/peers.h"
#include "run/run_options.h"

namespace sluice::run {

class RunDevice {
 public:
  // Collective. A run that resumes keeps the memory figures of its `earlier` calibration (null: none), unless
  // the configuration sets them. Throws on every rank as profile::rank_device, and InfeasibleError if
  // snapshots take all memory.
  RunDevice(const RunOptions& options, const AgreedConfig& agreed, const base::Json& earlier, Peers& peers);

  c10::Device device() const { return chosen_.device; }
  const std::string& name() const { return chosen_.name; }              // "CPU", or the GPU's
  const std::string& pci_bus_id() const { return chosen_.pci_bus_id; }  // the GPU's; empty: none
  // A description of why this run is slower than its machines allow, the same on all ranks; empty: no reason
  // is known.
  const std::string& degraded() const { return degraded_; }
  // Scratch memory of attention's kernels, beside the memory that kinds count.
  ops::AttentionScratch attention_scratch() const { return attention_scratch_; }
  int64_t memory_bytes() const { return chosen_.memory_bytes; }
  int64_t host_bytes() const { return chosen_.host_bytes; }
  comm::Transport& transport() const { return between_devices_ ? *between_devices_ : between_hosts_; }

  // Collective, after measuring, which uses libraries and communicators as training will. GPU memory that
  // they took beside tensors, on the rank with most; plans cannot use it.
  int64_t taken_bytes(survive::Control& control) const;

 private:
  std::string connect(survive::Control& control);
  void set_aside_snapshots(const RunOptions& options, const AgreedConfig& agreed);

  profile::RankDevice chosen_;
  std::string degraded_;
  ops::AttentionScratch attention_scratch_;
  int64_t untracked_bytes_ = 0;  // on the GPU, when its free memory was read
  bool keeps_memory_ = false;    // device memory is configured, or as in the resumed run
  comm::Transport& between_hosts_;
  std::unique_ptr<comm::Transport> between_devices_;  // null on the CPU
};

}  // namespace sluice::run
