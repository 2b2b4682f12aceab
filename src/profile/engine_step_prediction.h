// What a generator's passes should take: its model's layers are measured first, on a short model of the same
// kinds (some seconds of a small one), then each pass that runs is priced.
#pragma once

#include <cstdint>

#include "cost/cost_model.h"
#include "generate/decoder.h"
#include "generate/sampling.h"
#include "inference/engine_step_clock.h"

namespace sluice::profile {

class EngineStepPrediction {
 public:
  // Collective over the TP group that the model's context has. Transfers between stages and lanes are taken
  // for loopback.
  EngineStepPrediction(const generate::ModelShard& model, const generate::Sampling& sampling);

  void add(const cost::DecodeWork& pass) { clock_.add(pass); }
  int64_t ns() const { return clock_.ns(); }  // of all that were added

 private:
  strategy::Scheme scheme_;
  cost::CostModel cost_;
  inference::EngineStepClock clock_;
};

}  // namespace sluice::profile
