// What a run says about each step, and the files it says it in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/json.h"
#include "report/tensorboard.h"

namespace sluice::report {

inline double milliseconds(int64_t time_ns) { return static_cast<double>(time_ns) / 1e6; }

// One line of metrics.jsonl (names and units: docs/formats.md).
struct StepMetrics {
  int64_t step = 0;
  double loss = 0;  // mean over targets, before the update
  int64_t tokens = 0;
  int64_t sequences = 0;
  std::string strategy;
  std::string fallback;  // why the plan is not the planner's; empty: it is
  std::string device;    // that rank 0 computed on: "CPU", or a GPU's name
  std::string degraded;  // what made it slower than its machines could have it; empty: nothing
  double time_ms = 0;
  double predicted_ms = 0;
  double planning_ms = 0;
  int64_t gap_ppm = 0;
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t pull_bytes = 0;  // received by all ranks
  int64_t push_bytes = 0;
  int64_t ring_bytes = 0;         // for attention, sent between lanes by whichever exchange
  int64_t share_bytes = 0;        // gathered and summed between lanes that share parameters
  int64_t unfused_attention = 0;  // calls of all ranks that no fused kernel of their GPU took
  int64_t corpus_bytes = 0;       // tokens, targets and masks that all ranks read
  double link_exposed_ms = 0;     // step time in which the compute stream waited for pull or push
  double gather_exposed_ms = 0;   // … for parameters that lanes share, or sums of their gradients
  int64_t peak_bytes = 0;         // of the fullest rank
  int64_t predicted_peak_bytes = 0;
  double tokens_per_s = 0;
  double overhead_ms = 0;            // neither inside nodes nor waiting
  int64_t epoch = 0;                 // one more with each change of membership
  int64_t ranks = 0;                 // that trained it; 0: not known, of an older program
  int64_t snapshot_bytes = 0;        // sent to buddies beside it, by all ranks; 0: no snapshot was made
  double snapshot_ms = 0;            // cost of the last one (train/buddies.h), on the dearest rank
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
base::Json to_json(const EvaluationMetrics& metrics);

// Appends lines to metrics.jsonl and scalars to TensorBoard events. A resumed run drops the lines of steps
// that it is about to repeat: the file is read from its end, no further than to the newest step that stays.
// RunError on a full disk or an unwritable directory.
class MetricsWriter {
 public:
  struct Options {
    std::filesystem::path directory;
    bool tensorboard = true;
    int64_t first_step = 0;  // lines with step >= first_step are dropped
  };
  explicit MetricsWriter(const Options& options);

  // Of what an earlier part of the run has left: how many of the steps right before first_step have no line,
  // and whether there is one of an evaluation behind the last of them.
  int64_t missing_steps() const { return missing_steps_; }
  bool was_evaluated() const { return was_evaluated_; }
  void write(const StepMetrics& metrics);
  void write(const EvaluationMetrics& metrics);

 private:
  void drop_from(int64_t first_step);
  void write_line(const base::Json& line);

  std::filesystem::path path_;
  int64_t missing_steps_ = 0;
  bool was_evaluated_ = false;
  std::ofstream lines_;
  std::optional<TensorBoardWriter> tensorboard_;
};

}  // namespace sluice::report
