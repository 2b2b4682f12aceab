// Detects ranks that make others wait, with the same result on every rank. The ranks' figures of a step are
// gathered with their other statuses between two steps and given to a detector.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/step_graph.h"
#include "report/step_record.h"
#include "runtime/engine.h"
#include "watch/detector.h"
#include "watch/figures.h"
#include "watch/machine.h"
#include "watch/scatter.h"

namespace sluice::run {

// One rank's figures of a step. Trivially copyable, so that it can be sent.
struct RankStatus {
  watch::Sample sample;
  int64_t awaited_rank = -1;   // the rank that its computing waited for most; −1: none, or not known
  int64_t awaited_ns = 0;      // total of these waits, which lie between cells
  int64_t first_of_host = -1;  // the first rank on its machine; −1: not known, a machine of its own
};

class RankMonitor {
 public:
  // `pci_bus_id`: the rank's GPU; empty: none. `first_of_host`: as in RankStatus.
  explicit RankMonitor(const std::string& pci_bus_id, int64_t first_of_host = -1)
      : first_of_host_(first_of_host), machine_(pci_bus_id) {}

  RankStatus status(const runtime::StepResult& result);
  // Adds all ranks' figures to the step's record, and returns changed alarms. `graph`: the step's graph.
  // Equal statuses give equal changes on every rank.
  std::vector<watch::Detector::Change> observe(std::span<const RankStatus> words,
                                               const graph::StepGraph& graph, report::StepRecord& step);
  // By rank, over the last steps; 0: not known.
  std::vector<double> slowdowns() const { return detector_.slowdowns(); }
  // By rank, the percentage of its priced time that plans should assume: 100, or for ranks with a slowdown
  // alarm the slowdown in steps of five.
  std::vector<int> slowdown_percent(int ranks) const;
  // How much ranks vary from step to step (watch/scatter.h); 0: not known.
  double deviation() const { return scatter_.deviation(); }
  // The slowest of the ranks that have a slowdown alarm.
  std::optional<watch::Alarm> slowest() const;

 private:
  int64_t first_of_host_;
  watch::MachineWatch machine_;
  watch::Detector detector_;
  watch::Scatter scatter_;
};

}  // namespace sluice::run
