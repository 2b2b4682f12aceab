// Runs of training on stand-ins for GPUs, one a rank.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "checker.h"
#include "runtime/test_cluster.h"

namespace sluice::stand_in {

// Communicators over host memory that check what they move, in the order of the current stream as NCCL's;
// launches of a link's copies and sums that check each job.
class Devices final : public runtime::DeviceStandIn {
 public:
  c10::Device device(int rank) override;
  std::unique_ptr<comm::Transport> transport(comm::Transport& host) override;
  std::unique_ptr<runtime::LinkMover> link_mover(const c10::Device& device) override;
  runtime::NodeWatch* watch(int rank) override { return &checker(rank).watch(); }

  // Of every rank's device.
  Mutation mutation;
  bool counts = false;
  // What a launch takes, by rank; where it is given, an operation of several ranks ends when the last has
  // come.
  std::map<int, int64_t> launch_ns = {};
};

struct DeviceRun {
  runtime::RunRecord record;
  std::map<std::string, int64_t> faults;  // of all ranks
  int64_t accesses = 0;
  std::map<std::string, Count> counts;
};
// The run on stand-ins.
DeviceRun run_on_stand_ins(runtime::RunOptions options, Devices devices = {});

// "3 x write of …\n…", at most ten kinds.
std::string text_of(const std::map<std::string, int64_t>& faults);

}  // namespace sluice::stand_in
