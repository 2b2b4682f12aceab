// Weights & Biases and MLflow: processes that copy a run's metrics there (tools/track_run.py). Steps never
// wait for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "corpus/python_child.h"

namespace sluice::train {

class Trackers {
 public:
  // Starts the trackers that log.wandb and log.mlflow name, for the run directory log.dir
  // with its config.toml. InputError if the package is missing, or begins no run.
  Trackers(const config::LogConfig& log, corpus::PythonTools tools);

  // Waits until all lines of metrics.jsonl are copied, at most a
  // minute. Faults are only warnings, because the run itself is done.
  void close();

 private:
  struct Tracker {
    std::string key;  // log.wandb
    std::unique_ptr<corpus::PythonChild> child;
  };
  std::vector<Tracker> trackers_;
};

}  // namespace sluice::train
