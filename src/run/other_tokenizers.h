// Checks that models beside the trained one mean the same tokens by their ids.
#pragma once

#include "config/run_config.h"
#include "session/data.h"
#include "session/other_models.h"

namespace sluice::run {

// InputError naming the model and an id with its two texts if the model's folder has another tokenizer than
// model.hf. A teacher with other rows than the run's model must have a tokenizer, which proves that only
// padding differs; InputError otherwise.
void require_tokenizer(const session::OtherModel& model, const config::RunConfig& config);

// InputError naming an id and its two texts if the folder's tokenizer is not that of the run's documents.
void require_tokenizer(const session::OtherModel& model, const session::Data& data);

}  // namespace sluice::run
