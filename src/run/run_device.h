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
  // Collective. A run that continues keeps the figures of its `earlier` calibration, null for none, unless
  // the configuration names some. Throws on every rank as profile::rank_device, and InfeasibleError when
  // snapshots take all memory.
  RunDevice(const RunOptions& options, const AgreedConfig& agreed, const base::Json& earlier, Peers& peers);

  c10::Device device() const { return chosen_.device; }
  const std::string& name() const { return chosen_.name; }              // "CPU", or the GPU's
  const std::string& pci_bus_id() const { return chosen_.pci_bus_id; }  // of the GPU; empty: none
  // What makes this run slower than its machines could have it, in words, the same on all ranks; empty:
  // nothing.
  const std::string& degraded() const { return degraded_; }
  // Of attention's kernels, beside what kinds count.
  ops::AttentionScratch attention_scratch() const { return attention_scratch_; }
  int64_t memory_bytes() const { return chosen_.memory_bytes; }
  int64_t host_bytes() const { return chosen_.host_bytes; }
  comm::Transport& transport() const { return between_devices_ ? *between_devices_ : between_hosts_; }

  // Collective, behind measuring, which uses libraries and communicators as training will: what they took of
  // a GPU beside tensors on the rank where it is most, and is not there for plans.
  int64_t taken_bytes(survive::Control& control) const;

 private:
  std::string connect(survive::Control& control);
  void set_aside_snapshots(const RunOptions& options, const AgreedConfig& agreed);

  profile::RankDevice chosen_;
  std::string degraded_;
  ops::AttentionScratch attention_scratch_;
  int64_t untracked_bytes_ = 0;  // of the GPU, when its free memory was read
  bool keeps_memory_ = false;    // plans may use what is configured, or what the continued run began with
  comm::Transport& between_hosts_;
  std::unique_ptr<comm::Transport> between_devices_;  // null on the CPU
};

}  // namespace sluice::run
