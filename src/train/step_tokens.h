// Reads the tokens that one rank needs of a step.
#pragma once

#include "corpus/blend.h"
#include "runtime/step_tokens.h"
#include "strategy/step_plan.h"

namespace sluice::train {

// The pieces of this rank's own micro-batches. A target is the next token of the same sequence; the last
// position of a sequence has none, nor has one whose target is masked out. InputError as Blend::read.
runtime::StepTokens read_step_tokens(const corpus::Blend& blend, const strategy::StepPlan& plan,
                                     int world_size, int rank);

}  // namespace sluice::train
