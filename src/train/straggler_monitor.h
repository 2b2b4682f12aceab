// Finds ranks that make others wait: reports them, plans around them or drops them (watch.on_slow).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "run/plan_ahead.h"
#include "run/rank_monitor.h"
#include "run/run_context.h"

namespace sluice::train {

// The same on every rank.
class StragglerMonitor {
 public:
  // `run` is open and outlives this.
  explicit StragglerMonitor(run::RunContext& run);

  run::RankStatus status(const runtime::StepResult& result) { return watch_.status(result); }

  struct Findings {
    std::vector<watch::Detector::Change> changes;
    std::optional<int> leaving_rank;  // the rank that leaves the run after this step
  };
  // Collective: adds all ranks' statuses of a step to its record, in some steps also the critical
  // path. If watch.on_slow asks for it, later plans give slow ranks less work, or one of them leaves.
  Findings observe(const run::PreparedStep& step, const runtime::StepResult& result,
                   std::span<const run::RankStatus> words, report::StepRecord& record);
  // By rank, over the last steps; 0: unknown.
  std::vector<double> slowdowns() const { return watch_.slowdowns(); }
  // How much ranks vary from step to step (watch/scatter.h); 0: not known.
  double deviation() const { return watch_.deviation(); }

 private:
  void plan_at_paces(int64_t step);
  std::optional<int> leaver(const run::PreparedStep& step);
  bool fewer_are_faster(const run::PreparedStep& step, int without) const;

  run::RunContext& run_;
  const config::WatchConfig& config_;
  run::RankMonitor watch_;
  std::vector<int> planned_paces_;  // by rank: the slowdowns that plans from some step on use
  int64_t looked_ = 0;              // observed steps
  int64_t next_question_ = 0;       // observed steps before the next check whether a rank should leave
};

}  // namespace sluice::train
