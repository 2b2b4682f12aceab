// Places the experts that lanes divide anew, by the routers' visits (parallel.expert_placement).
// This adds no transfer: a lane pulls its experts at the beginning of each step anyway.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/place_experts.h"
#include "run/planning.h"
#include "runtime/engine.h"

namespace sluice::train {

// The same on every rank.
class ExpertRebalancer {
 public:
  // Both outlive this.
  ExpertRebalancer(run::Planning& planning, survive::Control& control);

  // Counts a step's visits. Collective every parallel.expert_placement_every steps: the counts
  // of all ranks since the last time determine where experts lie in plans of later steps.
  void observe(int64_t step, const runtime::StepResult& result);

 private:
  bool places() const { return layers_ > 0; }
  void count(const layers::ExpertLoad& load);
  std::vector<plan::ExpertUse> agreed_use();

  run::Planning& planning_;
  survive::Control& control_;
  const config::ParallelConfig& config_;
  int64_t layers_ = 0;  // the model's layers; 0: nothing is placed
  int64_t experts_ = 0;
  // This rank's visits layer by layer: by expert, then by pair if pairs are needed.
  std::vector<double> counts_;
};

}  // namespace sluice::train
