// A step of a model of several trunks (model::Program::trunk), each under a plan of its own. Its acts: forwards of
// all trunks but the last, forward and backward of the last, then forwards and backwards of the others, last one
// first; between them row links. A trunk in front of which, and in which, nothing is trained has no backward.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine.h"

namespace sluice::runtime {

// One trunk's part of a step. All borrowed. Both graphs are of one plan.
struct TrunkStep {
  const graph::StepGraph* forward = nullptr;  // an evaluation; not needed of the last trunk in training
  const graph::StepGraph* train = nullptr;    // not needed in an evaluation, or where nothing is trained
  const StepTokens* tokens = nullptr;
};

// What an act did on this rank.
struct TrunkAct {
  size_t trunk = 0;
  graph::Purpose purpose = graph::Purpose::kTrain;
  StepResult result;
  int64_t row_bytes = 0;  // that the rank sent of the rows that it left
};

// Acts in the order in which they ran. The last one's result has the loss, norm and targets of the step.
struct TrunksResult {
  std::vector<TrunkAct> acts;
  const StepResult& step() const { return acts.back().result; }
};

// Collective. REQUIRES: the trunks are those of the engine's model, front to back, without gaps, and all plans have
// the same sequences; something is trained.
TrunksResult train_trunks(Engine& engine, std::span<const TrunkStep> trunks, const AdamW& optimizer);
// Collective. `rows`: as of Engine::evaluate.
TrunksResult evaluate_trunks(Engine& engine, std::span<const TrunkStep> trunks, RowFigures* rows = nullptr);

}  // namespace sluice::runtime
