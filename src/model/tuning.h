// What of a model is trained: parameters are frozen, or get adapters, by the names that they have in Hugging
// Face files. The shape keeps the answer (Shape::lora and the frozen bits), so that everything derived from a
// shape knows it: parameters, buckets, links, memory, work.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "model/parameters.h"
#include "model/shape.h"

namespace sluice::model {

// Names of parameters, or of the modules that they belong to ("model.layers.0.mlp"), in which * stands for
// any text, ? for a character and [0-3] for one of these.
bool matches(const std::string& pattern, const std::string& name);

// The names of all tensors of a model's parameters.
std::vector<std::string> tensor_names(const ParameterTable& table);
// InputError when a pattern matches none of `names`, with those near it; `what` names the option
// ("train.freeze").
void require_matches(const std::vector<std::string>& patterns, const std::vector<std::string>& names,
                     const std::string& what);

// Freezes what the patterns match, besides what is frozen already. InputError as require_matches; when one
// matches some but not all tensors of a matrix that is computed as one (queries, keys and values; gate and
// up); when nothing is left to train.
void freeze(Shape& shape, const std::vector<std::string>& patterns);

// Adapters at the matrices of all blocks whose modules `lora` names ("q_proj", or "all-linear" for all of
// them), and at experts' by the parameters that stack them ("mlp.experts.down_proj"); everything else is
// frozen. InputError naming a target that no block has, or a rank above its matrix's.
void adapt(Shape& shape, const Lora& lora);

// Each layer's experts have beside them how often they were visited in the last step, which a loss may
// balance them by. REQUIRES: there are experts, and nothing is frozen or adapted yet.
void remember_loads(Shape& shape);

// Whether it is a head's that is no vocabulary's.
bool is_of_numbers(const Parameter& parameter);

// Elements of a bucket, of one parameter, that learn alike: as the first of some groups says, one of whose
// patterns matches their name, or as all others do.
struct ParameterGroupRun {
  base::Interval elements;
  int group = -1;  // -1: none
  bool one_dimensional = false;
  bool hidden_matrix = false;  // of a block, no convolution
  Learns learns = Learns::kByGradient;
};
// Whether an optimiser of matrices has it: neither a vector, nor a convolution, nor of the ends.
bool is_hidden_matrix(const Bucket& bucket, const Parameter& parameter);
// By bucket, of those that are trained; ascending.
using ParameterGroupRuns = std::vector<std::vector<ParameterGroupRun>>;
ParameterGroupRuns parameter_group_runs(const ParameterTable& table,
                                        const std::vector<std::vector<std::string>>& groups);

// Whether anything is frozen, adapted or remembered.
bool is_tuned(const Shape& shape);
// Keeps the matrices of blocks that LoRA freezes in few bits. InputError when there are no adapters, or when
// a matrix has no whole blocks of a format that needs them.
void quantize_base(Shape& shape, const BaseFormat& format);
// The same model with its frozen base as numbers.
Shape with_plain_base(Shape shape);

// The same model, all of it trained, without adapters and memory: what it is in Hugging Face files.
Shape untuned(const Shape& shape);

// A checkpoint's word for it: null, or the adapters, what is remembered and the names of frozen tensors. The
// second adds it to an untuned shape; InputError naming `name` and the key.
base::Json tuning_to_json(const Shape& shape);
void read_tuning(const base::Json& json, const std::string& name, Shape& shape);

}  // namespace sluice::model
