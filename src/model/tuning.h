// The trained part of a model: parameters are frozen, or get adapters, by their names in Hugging Face files.
// A tuned model is a model of its own, so that everything derived from it knows its tuning: parameters,
// buckets, links, memory, work.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "model/model.h"
#include "model/parameters.h"

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

// The model with the parameters frozen that the patterns match, in addition to frozen ones. InputError as
// require_matches; if a pattern matches only some tensors of a matrix that is computed as one (queries, keys
// and values; gate and up); if nothing is left to train.
Model frozen(const Model& model, const std::vector<std::string>& patterns);

// The model with adapters at the matrices of all blocks whose modules `lora` names ("q_proj", or "all-linear"
// for all), and at experts' by the parameters that stack them ("mlp.experts.down_proj"). Everything else is
// frozen. InputError naming a target that no block has, or a rank above its matrix's. Without adapters if the
// rank is 0.
Model adapted(const Model& model, const Lora& lora);

// The model whose experts remember how often they were visited in the last step, for a loss that balances
// them. REQUIRES: there are experts, and nothing is frozen or adapted yet.
Model remembering_loads(const Model& model);

// The model that trains the MTP layer of its files beside its head. InputError if its family or its
// config.json has none, or several. REQUIRES: nothing is frozen or adapted yet.
Model with_mtp(const Model& model);

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

// Whether anything is frozen, adapted or remembered, or an MTP layer trains.
bool is_tuned(const Model& model);
// The same adapters with another rank, and an alpha as large. The rank may exceed a matrix's own.
Model with_rank(const Model& model, int64_t rank);
// The model that keeps in few bits the block matrices that LoRA freezes. InputError if there are no adapters,
// or if a matrix does not divide into the format's blocks.
Model with_base(const Model& model, const BaseFormat& format);
// A model that computes without being trained, with the matrices of its blocks in few bits. `key`: the
// format's key, for messages. InputError as with_base; the model as it is if the format is plain.
Model coded(const Model& model, const BaseFormat& format, const std::string& key);
// The same model with uncoded numbers as its frozen base.
Model with_plain_base(const Model& model);

// The same model, all of it trained, without adapters, remembered loads and MTP layer, as config.json has it.
Model untuned(const Model& model);
// The same with its MTP layer, if that trains: what an export writes.
Model as_exported(const Model& model);

// The tuning in a checkpoint: null, or the adapters, remembered loads, MTP layer and names of frozen tensors.
// with_tuning() adds it to an untuned model; InputError naming `name` and the key.
base::Json tuning_to_json(const Model& model);
Model with_tuning(const Model& model, const base::Json& json, const std::string& name);

}  // namespace sluice::model
