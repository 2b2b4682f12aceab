// Tokens and targets of steps that no corpus has, the same for every run and layout.
#pragma once

#include <cstdint>

#include "model/model.h"
#include "runtime/step_tokens.h"
#include "strategy/step_plan.h"

namespace sluice::runtime {

// A learnable function of document and position.
int64_t token_at(int64_t document, int64_t position, int64_t vocab);
// About one in `loss_one_in` targets, at random places, has a loss.
StepTokens made_up_tokens(const strategy::StepPlan& plan, int world_size, int rank, int64_t vocab,
                          int64_t loss_one_in = 1);

// The same tokens for a model whose head has numbers: rows with a target have a class, and `figures` figures.
StepTokens made_up_numbers(const strategy::StepPlan& plan, int world_size, int rank,
                           const model::Model& model, int64_t figures);

// Whether a row has a loss: under a vocabulary head, and under a head of numbers.
bool has_loss(const strategy::Sequence& sequence, int64_t position, int64_t one_in);
bool has_number(const strategy::Sequence& sequence, int64_t position, const model::Model& model);

}  // namespace sluice::runtime
