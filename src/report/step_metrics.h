// What a run says about each step, and the files it says it in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace sluice::report {

// One line of metrics.jsonl (names and units: docs/formats.md).
struct StepMetrics {
  int64_t step = 0;
  double loss = 0;  // mean over targets, before the update
  int64_t tokens = 0;
  int64_t sequences = 0;
  std::string strategy;
  std::string fallback;  // why the plan is not the planner's; empty: it is
  double time_ms = 0;
  double predicted_ms = 0;
  double planning_ms = 0;
  int64_t gap_ppm = 0;
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t pull_bytes = 0;  // received by all ranks
  int64_t push_bytes = 0;
  int64_t ring_bytes = 0;        // for attention, sent between lanes by whichever exchange
  int64_t share_bytes = 0;       // gathered and summed between lanes that share parameters
  int64_t unfused_attention = 0;  // calls of all ranks that no fused kernel of their GPU took
  int64_t corpus_bytes = 0;      // tokens, targets and masks that all ranks read
  double link_exposed_ms = 0;    // step time in which the compute stream waited for pull or push
  double gather_exposed_ms = 0;  // … for parameters that lanes share, or sums of their gradients
  int64_t peak_bytes = 0;        // of the fullest rank
  int64_t predicted_peak_bytes = 0;
  double tokens_per_s = 0;
  double overhead_ms = 0;  // neither inside nodes nor waiting
  int64_t epoch = 0;       // one more with each change of membership
  int64_t ranks = 0;       // that trained it; 0: not known, of an older program
  int64_t snapshot_bytes = 0;  // sent to buddies beside it, by all ranks; 0: no snapshot was made
  double snapshot_ms = 0;      // that the last snapshot took beside the steps, on the slowest rank
  double checkpoint_blocked_ms = 0;  // that saving held the run up since the line before, likewise
};

struct EvaluationMetrics {
  int64_t step = 0;
  std::string set;  // its name; empty: the only one
  double validation_loss = 0;
  int64_t targets = 0;
  std::string fallback;  // of the first batch that had one
};

base::Json to_json(const StepMetrics& metrics);
struct EpochOfStep {
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t ranks = 0;
};
// "4 ranks, from step 6 on 2, from step 19 on 4" of steps in their order; "" where all are of one epoch.
std::string epochs_text(const std::vector<EpochOfStep>& steps);
base::Json to_json(const EvaluationMetrics& metrics);

class RunSummary;

// Appends lines to metrics.jsonl and scalars to TensorBoard events. A resumed run drops the lines of steps
// it is about to repeat. RunError on a full disk or an unwritable directory.
class MetricsWriter {
 public:
  struct Options {
    std::filesystem::path directory;
    bool tensorboard = true;
    int64_t first_step = 0;  // lines with step >= first_step are dropped
  };
  explicit MetricsWriter(const Options& options);
  ~MetricsWriter();

  // Of what an earlier part of the run has left: how many of the steps before first_step have no line, and
  // whether there is one of an evaluation after `step`.
  int64_t missing_steps() const;
  bool has_evaluation(int64_t step) const;
  // Of the lines that stay.
  const RunSummary& earlier() const;
  void write(const StepMetrics& metrics);
  void write(const EvaluationMetrics& metrics);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What the terminal shows when a run ends, all of its steps in view: losses of the first and last ten steps,
// strategies used and how often, tokens per second, prediction error, exposed link time.
class RunSummary {
 public:
  void add(const StepMetrics& metrics);
  void add(const EvaluationMetrics& metrics);
  std::string text() const;

 private:
  std::vector<StepMetrics> steps_;
  std::vector<EvaluationMetrics> evaluations_;
};

}  // namespace sluice::report
