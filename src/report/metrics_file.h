// The files in which a run records each step (report/step_record.h) and each evaluation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/appended_file.h"
#include "base/json_fwd.h"
#include "report/completions.h"
#include "report/step_record.h"
#include "report/tensorboard.h"

namespace sluice::report {

struct EvaluationMetrics {
  int64_t step = 0;
  std::string set;      // its name; empty: the only one
  std::string adapter;  // another adapter in place of the trained one; empty: none. `set` names it, too
  double validation_loss = 0;
  int64_t targets = 0;
  std::optional<double> reward;  // mean of greedy responses to the set's prompts
  // Heads alone: the share of right classes or pairs, F1 of classes, the mean difference between the rewards
  // of a pair's answers, and retrieval (run/text_retrieval.h).
  std::optional<double> accuracy, f1, margin, recall_at_1, recall_at_10, mrr_at_10, ndcg_at_10;
  std::string fallback;  // the first batch's that had one
};

// The known figures of an evaluation, with their keys.
std::vector<std::pair<std::string, double>> head_figures(const EvaluationMetrics& metrics);
base::Json to_json(const EvaluationMetrics& metrics);

// Appends lines to metrics.jsonl, and to completions.jsonl where a step shows some, and scalars to
// TensorBoard events. A resumed run drops the lines of steps that it is about to repeat: the file is read
// from its end, no further than to the newest step that stays. RunError on a full disk or an unwritable
// directory.
class MetricsWriter {
 public:
  struct Options {
    std::filesystem::path directory;
    bool tensorboard = true;
    int64_t first_step = 0;  // lines with step >= first_step are dropped
  };
  explicit MetricsWriter(const Options& options);

  // State that an earlier part of the run has left: how many steps right before first_step have no line, and
  // whether an evaluation follows the last of them.
  int64_t missing_steps() const { return missing_steps_; }
  bool was_evaluated() const { return was_evaluated_; }
  void write(const StepRecord& step);
  void write(const EvaluationMetrics& metrics);
  // Whether the file was deleted since the last call; it was then written anew, with all of its lines.
  bool take_restored() { return lines_->take_restored(); }

 private:
  void drop_from(int64_t first_step);
  void write_line(const base::Json& line);
  void write(const std::vector<Completion>& completions);

  std::filesystem::path path_;
  int64_t missing_steps_ = 0;
  bool was_evaluated_ = false;
  std::optional<base::AppendedFile> lines_;
  std::optional<CompletionsWriter> completions_;  // none: no step had any yet
  std::optional<TensorBoardWriter> tensorboard_;
  const Options options_;
};

}  // namespace sluice::report
