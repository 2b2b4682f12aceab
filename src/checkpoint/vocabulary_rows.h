// Adapts a model's parameters to a vocabulary with more or fewer rows than its files have: models with one
// tokenizer pad their matrices to different multiples.
#pragma once

#include "checkpoint/hugging_face.h"
#include "model/parameters.h"

namespace sluice::checkpoint {

// Gives `source`, which belongs to table `files`, as the parameters of `wanted`: the same model with another
// vocabulary. Common rows are the files', further ones 0. Borrows both tables. REQUIRES: only rows differ.
ParameterSource with_vocabulary(const model::ParameterTable& wanted, const model::ParameterTable& files,
                                ParameterSource source);

}  // namespace sluice::checkpoint
