// Who makes others wait, told on every rank alike: what each says of its step, gathered with the other words
// between two steps, and what a detector makes of it.
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

namespace sluice::run {

// One rank's part. Trivial to send.
struct RankStatus {
  watch::Sample sample;
  int64_t awaited_rank = -1;  // whom its computing waited for most between cells; −1: nobody, or not known
  int64_t awaited_ns = 0;     // how long
};

class RankMonitor {
 public:
  // `pci_bus_id`: of the rank's GPU; empty: none.
  explicit RankMonitor(const std::string& pci_bus_id) : machine_(pci_bus_id) {}

  RankStatus status(const runtime::StepResult& result);
  // Puts what all ranks said into the step's record, and tells what changed. `graph`: what the step ran. The
  // same words make the same changes on every rank.
  std::vector<watch::Detector::Change> observe(std::span<const RankStatus> words,
                                               const graph::StepGraph& graph, report::StepRecord& step);
  // By rank, over the last steps; 0: not known.
  std::vector<double> slowdowns() const { return detector_.slowdowns(); }
  // By rank, what plans should count with in hundredths: 100 but for ranks that are told slow, theirs in
  // steps of five.
  std::vector<int> slowdown_percent(int ranks) const;
  // The slowest of those that are told slow.
  std::optional<watch::Alarm> slowest() const;

 private:
  watch::MachineWatch machine_;
  watch::Detector detector_;
};

}  // namespace sluice::run
