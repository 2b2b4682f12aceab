// Names of a language model's tensors in files: it may be a part of a larger model, and one tensor may hold
// all experts of a layer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/hugging_face.h"

namespace sluice::checkpoint {

struct FileNames {
  std::string trunk = "model.";  // "model.language_model."
  std::string head = "lm_head.";
  bool stacked_experts = false;     // one tensor for all experts: [experts, out, in],
  bool transposed_experts = false;  // or [experts, in, out]
  bool mtp_differs = false;         // experts of the MTP layer are stacked if others' are not, and only then

  // Returns "model.language_model.layers.0.mlp.up_proj.weight" for "model.layers.0.mlp.up_proj.weight".
  std::string of(const std::string& name) const;
  // A parameter's tensors under these names.
  std::vector<model::HuggingFaceTensor> tensors(const model::Bucket& bucket,
                                                const model::Parameter& parameter) const;
  // Whether the model is a part of a larger model.
  bool inside() const { return trunk != FileNames{}.trunk && !trunk.empty(); }
  bool operator==(const FileNames&) const = default;
};

// The names that the files use for the model's tensors; FileNames{} if none fit. `shape_of` returns the shape
// of the tensor with a name, or null if there is no such tensor.
using ShapeOf = std::function<const std::vector<int64_t>*(const std::string&)>;
FileNames find_names(const model::ParameterTable& table, const ShapeOf& shape_of);

}  // namespace sluice::checkpoint
