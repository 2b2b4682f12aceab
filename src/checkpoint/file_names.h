// What files call a language model's tensors where it is a part of a larger model, and where they hold one
// tensor of all experts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/hugging_face.h"

namespace sluice::checkpoint {

struct FileNames {
  std::string trunk = "model.";  // "model.language_model."
  std::string head = "lm_head.";
  bool stacked_experts = false;     // one tensor in place of a tensor each: [experts, out, in],
  bool transposed_experts = false;  // or [experts, in, out]

  // "model.language_model.layers.0.mlp.up_proj.weight" of "model.layers.0.mlp.up_proj.weight".
  std::string of(const std::string& name) const;
  // A parameter's tensors by those names.
  std::vector<model::HuggingFaceTensor> tensors(const model::Bucket& bucket,
                                                const model::Parameter& parameter) const;
  // Whether the model is a part of a larger one.
  bool inside() const { return trunk != FileNames{}.trunk && !trunk.empty(); }
  bool operator==(const FileNames&) const = default;
};

// The names under which files have the model's tensors; FileNames{} where none fit. `shape_of` returns the
// shape of the tensor with a name; null: there is no such tensor.
using ShapeOf = std::function<const std::vector<int64_t>*(const std::string&)>;
FileNames find_names(const model::ParameterTable& table, const ShapeOf& shape_of);

}  // namespace sluice::checkpoint
