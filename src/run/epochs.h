// train.epochs: how many steps so many passes over the training data are.
#pragma once

#include <cstdint>

#include "config/run_config.h"
#include "corpus/indexed.h"

namespace sluice::run {

// The steps, at least 1, after which training has drawn train.epochs times the tokens of one pass over
// data.train, as corpus::Sampler cuts and draws them; with [rl], train.epochs times its documents,
// prompts_per_step to a rollout or step. InputError when the configuration has phases or lists its batches,
// when [rl] draws prompts again (dynamic sampling), or when the steps are more than a run may have. REQUIRES:
// train.epochs > 0; config.model.shape.
int64_t steps_of_epochs(const config::RunConfig& config, corpus::IndexedOptions indexed = {});

// Sets train.steps where train.epochs is given. InputError as steps_of_epochs.
void resolve_epochs(config::RunConfig& config, const corpus::IndexedOptions& indexed = {});

}  // namespace sluice::run
