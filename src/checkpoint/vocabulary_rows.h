// Adapts a model's parameters to a vocabulary with more or fewer rows than its files have: models with one
// tokenizer pad their matrices to different multiples.
#pragma once

#include <functional>

#include "base/interval.h"
#include "checkpoint/hugging_face.h"
#include "model/parameters.h"

namespace sluice::checkpoint {

// Gives numbers of elements of a bucket of any table of one model.
using BucketSource = std::function<void(const model::Bucket& bucket, base::Interval interval, float* values)>;

// Gives `source`, which has the buckets of table `files`, as the parameters of the same model with another
// vocabulary, however they lie in buckets. Common rows are the files', further ones 0. Borrows the table.
// REQUIRES: only rows differ, and no parameter is coded.
BucketSource with_vocabulary(const model::ParameterTable& files, ParameterSource source);

}  // namespace sluice::checkpoint
