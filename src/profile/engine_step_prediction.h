// Predicts the time of a generator's engine steps. The model's layers are measured first, on a short model of
// the same kinds (some seconds for a small model); then each engine step that runs is priced.
#pragma once

#include <cstdint>

#include "cost/cost_model.h"
#include "generate/decoder.h"
#include "generate/sampling.h"
#include "inference/engine_step_clock.h"

namespace sluice::profile {

class EngineStepPrediction {
 public:
  // Collective over the TP group of the model's context. Transfers between stages and lanes are priced as
  // over loopback.
  EngineStepPrediction(const generate::ModelShard& model, const generate::Sampling& sampling);

  void add(const cost::DecodeWork& pass) { clock_.add(pass); }
  int64_t ns() const { return clock_.ns(); }  // predicted time of all engine steps added

 private:
  strategy::Scheme scheme_;
  cost::CostModel cost_;
  inference::EngineStepClock clock_;
};

}  // namespace sluice::profile
