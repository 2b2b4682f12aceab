// One rank of a training run: sets everything up, then plans ahead, runs, evaluates, saves, and resumes.
#pragma once

#include <memory>
#include <string>

#include "run/run_options.h"

namespace sluice::train {

class Trainer {
 public:
  // Collective over all ranks of the launch: corpora, transport, calibration, planner, parameters. Throws
  // base::Error on every rank when any rank fails; all but the lowest of those that failed throw QuietError.
  explicit Trainer(run::RunOptions options);
  ~Trainer();

  // The plan of the first step, for people (--dry-run). The same on every rank.
  std::string describe_first_step();

  // Collective. Runs the steps that are left; returns early, with everything saved, after SIGTERM or SIGINT
  // on any rank.
  void run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::train
