// What a report is made from. A simulated run and a real one fill the same records, so one page shows both,
// and prediction beside measurement.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/trace.h"
#include "report/time_shares.h"

namespace sluice::report {

// One step under one system.
struct StepRecord {
  int64_t step = 0;
  int64_t tokens = 0;
  int64_t sequences = 0;
  std::string strategy;
  int64_t time_ns = 0;         // simulated, or measured
  int64_t predicted_ns = 0;    // of a measured step; 0: none
  int64_t lower_bound_ns = 0;  // of the planner; 0: none
  int64_t gap_ppm = 0;
  int64_t planning_ns = 0;  // measured; 0 in simulations, whose files repeat byte for byte
  TimeShares shares;
  int64_t peak_bytes = 0;  // of the fullest rank
  double loss = 0;         // of a measured step
};

struct SystemRun {
  std::string name;           // "sluice", "megatron", …
  std::string title;          // "Megatron-LM"
  std::string configuration;  // "DP2 TP4 PP2"; empty for strategies that change
  std::vector<StepRecord> steps;
};

// One step, drawn rank by rank.
struct Timeline {
  std::string title;
  std::vector<graph::TraceRecord> records;
  std::vector<graph::TraceCounter> counters;  // "memory"
  std::vector<int64_t> peak_bytes;            // by rank
};

struct RunData {
  std::string title;
  bool simulated = false;
  // In the order in which they are shown: cluster, model, calibration and its source, corpus, …
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<int64_t> lengths;    // of the corpus's sequences, tokens
  std::vector<SystemRun> systems;  // Sluice first; a real run has one
  std::vector<Timeline> timelines;
  int64_t device_bytes = 0;  // of a rank; 0: not known
};

}  // namespace sluice::report
