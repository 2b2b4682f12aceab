// Whether models beside the one that a run trains mean the same tokens by their ids.
#pragma once

#include "config/run_config.h"
#include "session/data.h"
#include "session/other_models.h"

namespace sluice::run {

// InputError naming the model and an id with its two texts where its folder has another tokenizer than
// model.hf; for a teacher with other rows than the run's model also where it has no tokenizer to tell by that
// these only pad the vocabulary, or where not only padding differs.
void require_tokenizer(const session::OtherModel& model, const config::RunConfig& config);

// InputError naming an id and its two texts where the folder has another tokenizer than the run's documents.
void require_tokenizer(const session::OtherModel& model, const session::Data& data);

}  // namespace sluice::run
