// The data of a report. A simulated run and a real one fill the same records, so one page shows both, and
// prediction beside measurement. report/run_files reads the data from a run's directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "corpus/lengths.h"
#include "graph/trace.h"
#include "report/completions.h"
#include "report/step_record.h"

namespace sluice::report {

struct Evaluation {
  int64_t step = 0;
  std::string set;  // its name; empty: the only one
  double validation_loss = 0;
  int64_t targets = 0;
  std::optional<double> reward = {};  // mean of greedy responses, in reinforcement learning
  // A head's figures, named as in kHeadFigures.
  std::vector<std::pair<std::string, double>> figures = {};
};

// The keys in metrics.jsonl of a head's figures beside the loss.
inline constexpr const char* kHeadFigures[] = {"accuracy",     "f1",        "margin",    "recall_at_1",
                                               "recall_at_10", "mrr_at_10", "ndcg_at_10"};

struct SystemRun {
  std::string name;           // "sluice", "megatron", …
  std::string title;          // "Megatron-LM"
  std::string configuration;  // "DP2 TP4 PP2"; empty for strategies that change
  std::string infeasible;     // why it cannot run this; empty: it can
  std::vector<StepRecord> steps;
  // The mean step's if all-gathers between nodes take their measured time; 0: not known.
  int64_t measured_passes_step_ns = 0;
};

// One step, drawn rank by rank.
struct Timeline {
  std::string title;
  int64_t step = 0;
  std::string system;     // SystemRun::name
  bool measured = false;  // else as the clock predicts it
  std::string note;       // the ranks that it shows; empty: all
  std::vector<graph::TraceRecord> records;
  std::vector<graph::TraceCounter> counters;  // "memory"
  std::vector<int64_t> peak_bytes;            // by rank; empty: not known
};

struct RunData {
  std::string title;
  bool simulated = false;
  int ranks = 0;         // 0: not known
  std::string hardware;  // a rank's device: "A800"; empty: not known
  // In the order in which they are shown: cluster, model, calibration and its source, corpus, …
  std::vector<std::pair<std::string, std::string>> facts;
  corpus::LengthDistribution lengths;  // the corpus' sequences
  std::vector<SystemRun> systems;      // Sluice first; a real run has one
  std::vector<Evaluation> evaluations;
  std::vector<Completion> completions;  // responses of rollouts, the earliest first
  std::vector<Timeline> timelines;
  int64_t device_bytes = 0;        // a rank's; 0: not known
  std::vector<std::string> notes;  // data that could not be read, for readers of the page
};

}  // namespace sluice::report
