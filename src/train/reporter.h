// A run's output for people, all on rank 0: the files of its
// directory, a line per step, and at the end summary and report.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "graph/step_graph.h"
#include "report/metrics_file.h"
#include "run/run_context.h"
#include "serve/metrics_endpoint.h"
#include "train/best_evaluation.h"
#include "train/trackers.h"
#include "watch/detector.h"

namespace sluice::train {

class Reporter {
 public:
  // Collective: opens the run directory's files. `run` is open and outlives the reporter.
  explicit Reporter(run::RunContext& run);

  // Whether the earlier part of the run has an evaluation after its last step. Valid on rank 0.
  bool was_evaluated() const { return metrics_ && metrics_->was_evaluated(); }

  void write(const report::StepRecord& step);
  // Writes the changes after a step that ran `graph`; `paces`: slowdowns by rank, 0: unknown.
  void write(const std::vector<watch::Detector::Change>& changes, const report::StepRecord& step,
             const graph::StepGraph& graph, const std::vector<double>& paces) const;
  void write(const std::vector<report::EvaluationMetrics>& of_sets);
  // Called after the run's last step.
  void close(const BestEvaluation& best);

 private:
  void open_files();
  void prune_mirror(int64_t done) const;
  void describe_run() const;
  void look_at_files();
  int64_t remaining_ns();
  void tell_of_lost_model(const report::StepRecord& step);
  void show_to_prometheus(const report::StepRecord& step);
  void write_report();
  void tell_next_commands(const BestEvaluation& best) const;

  run::RunContext& run_;
  const config::RunConfig& config_ = run_.config();
  std::optional<report::MetricsWriter> metrics_;  // rank 0
  std::optional<Trackers> trackers_;              // rank 0
  int64_t done_ = run_.start().state().step;      // steps done
  int64_t tokens_ = 0;                            // since this was made
  bool told_of_prometheus_ = false;
  bool told_of_lost_model_ = false;
  std::unique_ptr<serve::MetricsEndpoint> endpoint_;  // rank 0's, for log.metrics
  // Start of the steps that the remaining time is computed from; the first, slower step is left out.
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace sluice::train
