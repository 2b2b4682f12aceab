// The trained part of a model: parameters are frozen, or get adapters, by their names in Hugging Face files.
// The shape keeps the result (Shape::lora and the frozen bits), so that everything derived from a shape uses
// it: parameters, buckets, links, memory, work.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "model/parameters.h"
#include "model/shape.h"

namespace sluice::model {

// Matches names of parameters, or of their modules ("model.layers.0.mlp"): * matches any text, ? a character,
// [0-3] one of these characters.
bool matches(const std::string& pattern, const std::string& name);

// The names of all tensors of a model's parameters.
std::vector<std::string> tensor_names(const ParameterTable& table);
// InputError if a pattern matches none of `names`, with the nearest names. The option is named by `what`
// ("train.freeze").
void require_matches(const std::vector<std::string>& patterns, const std::vector<std::string>& names,
                     const std::string& what);

// Freezes the parameters that the patterns match, in addition to frozen ones. InputError as require_matches;
// if a pattern matches only some tensors of a matrix that is computed as one (queries, keys and values; gate
// and up); if nothing is left to train.
void freeze(Shape& shape, const std::vector<std::string>& patterns);

// Adds adapters to the matrices of all blocks whose modules `lora` names ("q_proj", or "all-linear" for all),
// and to experts' by the parameters that stack them ("mlp.experts.down_proj"). Freezes everything else.
// InputError naming a target that no block has, or a rank above its matrix's.
void adapt(Shape& shape, const Lora& lora);

// Makes each layer's experts remember how often they were visited in the last step, for a loss that balances
// them. REQUIRES: there are experts, and nothing is frozen or adapted yet.
void remember_loads(Shape& shape);

// Whether the parameter belongs to a head without vocabulary.
bool is_of_numbers(const Parameter& parameter);

// Elements of a bucket, inside one parameter, that learn alike: by the first group with a pattern that
// matches their name, or by the default.
struct ParameterGroupRun {
  base::Interval elements;
  int group = -1;  // -1: none
  bool one_dimensional = false;
  bool hidden_matrix = false;  // in a block; not a convolution
  Learns learns = Learns::kByGradient;
};
// Whether an optimizer for matrices updates it: neither vectors, nor convolutions, nor the model's ends.
bool is_hidden_matrix(const Bucket& bucket, const Parameter& parameter);
// By bucket, for trained buckets; ascending.
using ParameterGroupRuns = std::vector<std::vector<ParameterGroupRun>>;
ParameterGroupRuns parameter_group_runs(const ParameterTable& table,
                                        const std::vector<std::vector<std::string>>& groups);

// Whether anything is frozen, adapted or remembered.
bool is_tuned(const Shape& shape);
// Keeps in few bits the block matrices that LoRA freezes. InputError if there are no adapters, or if a matrix
// does not divide into the format's blocks.
void quantize_base(Shape& shape, const BaseFormat& format);
// The same model with uncoded numbers as its frozen base.
Shape with_plain_base(Shape shape);

// The same model, all of it trained, without adapters and remembered loads, as in Hugging Face files.
Shape untuned(const Shape& shape);

// The tuning in a checkpoint: null, or the adapters, remembered loads and names of frozen tensors.
// read_tuning() adds it to an untuned shape; InputError naming `name` and the key.
base::Json tuning_to_json(const Shape& shape);
void read_tuning(const base::Json& json, const std::string& name, Shape& shape);

}  // namespace sluice::model
