// train.epochs: converts passes over the training data into steps.
#pragma once

#include <cstdint>

#include "config/run_config.h"
#include "corpus/indexed.h"

namespace sluice::run {

// The steps, at least 1, after which training has drawn train.epochs times the tokens of one pass over
// data.train, cut and drawn as by corpus::Sampler. With [rl]: train.epochs times the documents, where each
// rollout or step draws prompts_per_step. InputError if the configuration has phases or lists its batches, if
// [rl] draws prompts again (dynamic sampling), or if the steps exceed a run's limit. REQUIRES: train.epochs >
// 0 and config.model.resolved.
int64_t steps_of_epochs(const config::RunConfig& config, corpus::IndexedOptions indexed = {});

// Sets train.steps if train.epochs is given. InputError as steps_of_epochs.
void resolve_epochs(config::RunConfig& config, const corpus::IndexedOptions& indexed = {});

}  // namespace sluice::run
