// A model's parameters with more or fewer rows of its vocabulary than its files have: models of one tokenizer
// pad their matrices to different multiples.
#pragma once

#include "checkpoint/hugging_face.h"
#include "model/parameters.h"

namespace sluice::checkpoint {

// `source`, of a table `files`, as the parameters of `wanted`: the same model with another vocabulary. Rows of
// both are the files', further ones 0. Borrows both tables. REQUIRES: the tables differ in rows alone.
ParameterSource with_vocabulary(const model::ParameterTable& wanted, const model::ParameterTable& files,
                                ParameterSource source);

}  // namespace sluice::checkpoint
