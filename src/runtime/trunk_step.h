// A step of a model of several trunks (model::Program::trunk), each under its own plan. Acts: forwards of all
// trunks but the last, forward and backward of the last, forwards and backwards of the others in reverse
// order; row links between acts. A trunk has no backward if nothing in it or before it trains.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine.h"

namespace sluice::runtime {

// One trunk's part of a step. All pointers are borrowed. Both graphs have the same plan.
struct TrunkStep {
  const graph::StepGraph* forward = nullptr;  // an evaluation; not needed for the last trunk in training
  const graph::StepGraph* train = nullptr;    // not needed in an evaluation, or if nothing is trained
  const StepTokens* tokens = nullptr;
};

// One act's results on this rank.
struct TrunkAct {
  size_t trunk = 0;
  graph::Purpose purpose = graph::Purpose::kTrain;
  StepResult result;
  int64_t row_bytes = 0;  // sent by the rank, of the rows that its act left
};

// Acts in the order in which they ran. The last one's result has the loss, norm and targets of the step.
struct TrunksResult {
  std::vector<TrunkAct> acts;
  const StepResult& step() const { return acts.back().result; }
};

// Collective. REQUIRES: the trunks are the engine's model from front to back, without gaps; all plans have
// the same sequences; something is trained.
TrunksResult train_trunks(Engine& engine, std::span<const TrunkStep> trunks, const AdamW& optimizer);
// Collective. `rows`: as in Engine::evaluate.
TrunksResult evaluate_trunks(Engine& engine, std::span<const TrunkStep> trunks, RowFigures* rows = nullptr);

}  // namespace sluice::runtime
