// Reads adapters that PEFT wrote (adapter_config.json, adapter_model.safetensors), several for one model.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "checkpoint/file_names.h"
#include "checkpoint/hugging_face.h"
#include "model/model.h"

namespace sluice::checkpoint {

// A model with the adapters of several folders side by side. Adapter j has columns [j·R, (j+1)·R) of all
// narrow rows, with R the highest rank. The rank of model::Lora is their sum, its factor 1: adapters are
// multiplied by their own factors beforehand. A matrix that an adapter leaves alone has zeros there.
struct SideBySide {
  model::Model model;
  ParameterSource read;  // masters of the shape's table
};

// Gives elements of a bucket of the model's table, tuned or not, and leaves adapters' elements untouched.
using BaseSource = std::function<void(const model::Bucket& bucket, base::Interval interval, float* values)>;

// `names`: of the base model's files. REQUIRES: an untuned shape, at least one folder. InputError naming the
// file and the way out if an adapter has another base or another kind (biases, other modules), or if one of
// several is DoRA's, whose scales are those of one adapter.
SideBySide side_by_side(const model::Model& base, const FileNames& names, BaseSource read,
                        const std::vector<std::filesystem::path>& folders);

// The adapter of one folder as values of a tuned model's own adapters, in which it has the model's factors
// and ranks: rows and columns beyond its rank are zero, and so are adapters of matrices that it leaves alone.
// Values of other parameters stay as they are. `tuned` outlives the result. InputError naming the file and
// the way out if it has another base or kind, a matrix that the model does not adapt or train, or a higher
// rank.
ParameterSource in_place_of(const model::ParameterTable& tuned, const FileNames& names,
                            const std::filesystem::path& folder);

}  // namespace sluice::checkpoint
