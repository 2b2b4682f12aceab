// One rank of a training run: sets up everything, plans ahead, runs steps, evaluates, saves, and resumes.
#pragma once

#include <memory>
#include <string>

#include "run/run_options.h"

namespace sluice::train {

class Trainer {
 public:
  // Collective over all ranks of the launch: corpora, transport, calibration, planner, parameters. Throws
  // base::Error on every rank if any rank fails; of the failed ranks all but the lowest throw QuietError.
  explicit Trainer(run::RunOptions options);
  ~Trainer();

  // The plan of the first step as text (--dry-run). The same on every rank.
  std::string describe_first_step();

  // Collective. Runs the steps that are left; returns early, with everything saved, after SIGTERM or SIGINT
  // on any rank.
  void run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::train
