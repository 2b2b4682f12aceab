#include "model/hugging_face.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "model/config_keys.h"
#include "model/counted.h"
#include "model/family.h"
#include "model/hugging_face_rope.h"
#include "model/shape_ranges.h"
#include "model/wrapped.h"

namespace sluice::model {
namespace {

using base::get_or;
using base::InputError;
using base::Json;
using base::text;

// Keys that shape the model; each is read below.
constexpr std::array kShapeKeys = {
    "architectures",
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "head_dim",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "rms_norm_eps",
    "tie_word_embeddings",
    "max_position_embeddings",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    "hidden_act",
    "attention_bias",
    "mlp_bias",
    "pretraining_tp",
    "attention_dropout",
};

template <size_t N>
bool is_one_of(const std::array<const char*, N>& keys, std::string_view key) {
  return std::ranges::find(keys, key, [](const char* known) { return std::string_view(known); }) !=
         keys.end();
}

const FamilyEntry& family_of(const Json& config, const std::string& name) {
  const std::string type = base::require<std::string>(config, "model_type", name);
  std::vector<std::string> known;
  for (const FamilyEntry& entry : families()) {
    known.emplace_back(entry.model_type);
    if (entry.model_type != type) continue;
    require_only(config, "architectures", Json::array({std::string(entry.architecture)}), name);
    return entry;
  }
  refuse(name, "model_type", type,
         base::join(known, ", ") + "; sluice plan and simulate count the costs of others");
}

bool is_computed(std::string_view model_type) {
  return std::ranges::find(families(), model_type, &FamilyEntry::model_type) != families().end();
}

void refuse_unsupported(const Json& config, const FamilyEntry& family, const std::string& name) {
  if (!family.biases) require_off(config, "attention_bias", name);
  require_off(config, "mlp_bias", name);
  require_only(config, "pretraining_tp", 1, name);
  require_only(config, "hidden_act", std::string(family.hidden_act), name);
  require_only(config, "attention_dropout", 0.0, name);
  if (family.absent_rotated == 1.0) require_only(config, "partial_rotary_factor", 1.0, name);
  for (const auto& [key, value] : config.items()) {
    const bool own = std::ranges::find(family.keys, key) != family.keys.end() ||
                     std::ranges::find(family.renamed, key, &KeyName::own) != family.renamed.end();
    if (own || changes_no_arithmetic(key) || is_one_of(kShapeKeys, key) || says_nothing(value)) continue;
    throw InputError(text(name, ": ", key, " is ", base::excerpt(value),
                          ", a key that Sluice does not compute: remove it if it does not change the model"));
  }
}

// What the family's files call a key; "": they lack it.
std::string own_key(const FamilyEntry& family, std::string_view common) {
  const auto found = std::ranges::find(family.renamed, common, &KeyName::common);
  return std::string(found == family.renamed.end() ? common : found->own);
}

int64_t kv_heads_of(const Json& config, const FamilyEntry& family, const Shape& shape,
                    const std::string& name) {
  const std::string key = own_key(family, "num_key_value_heads");
  // Null means as many as heads.
  const bool absent = !config.contains(key);
  const int64_t otherwise = absent && family.absent_kv_heads > 0 ? family.absent_kv_heads : shape.heads;
  return get_or<int64_t>(config, key.c_str(), otherwise, name);
}

int64_t head_dim_of(const Json& config, const FamilyEntry& family, const Shape& shape,
                    const std::string& name) {
  const int64_t latent = shape.latent.unrotated + shape.latent.rotated;
  if (latent > 0) return latent;
  if (config.contains("head_dim") && !config.at("head_dim").is_null()) {
    return base::require_in(config, "head_dim", kShapeRanges.head_dim, name);
  }
  if (!config.contains("head_dim") && family.absent_head_dim > 0) return family.absent_head_dim;
  if (shape.hidden % shape.heads != 0) {
    throw InputError(text(name, ": num_attention_heads ", shape.heads, " does not divide hidden_size ",
                          shape.hidden, " and head_dim is missing: add it"));
  }
  return shape.hidden / shape.heads;
}

// Sets how much of a head positions turn, which stands by its name in the file or among its rotary
// parameters, and returns the file without that. Text alone has one position a token, so sections of several
// say nothing.
Json take_rotated(Json config, const FamilyEntry& family, const std::string& name, Shape& shape) {
  constexpr const char* kKey = "partial_rotary_factor";
  double factor = family.absent_rotated;
  const auto take = [&](Json& from) {
    if (from.contains(kKey) && !from.at(kKey).is_null())
      factor = base::require_in(from, kKey, base::Range<double>{0.01, 1.0}, name);
    for (const char* key : {kKey, "mrope_section", "mrope_interleaved"}) from.erase(key);
  };
  take(config);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (config.contains(key) && config.at(key).is_object()) take(config.at(key));
  }
  shape.rotated = static_cast<int64_t>(static_cast<double>(shape.head_dim) * factor);
  if (shape.rotated == shape.head_dim) shape.rotated = 0;
  return config;
}

}  // namespace

Shape shape_from_hugging_face(const Json& whole, const std::string& name) {
  const Json config = language_config(whole, name);
  const FamilyEntry& family = family_of(config, name);
  refuse_unsupported(config, family, name);
  const ShapeRanges& ranges = kShapeRanges;
  const auto count = [&](const char* common, const base::Range<int64_t>& range, int64_t absent = 0) {
    const std::string key = own_key(family, common);
    return absent > 0 ? size_or(absent, config, key.c_str(), range, name)
                      : base::require_in(config, key, range, name);
  };

  Shape shape{.family = family.family};
  shape.layers = count("num_hidden_layers", ranges.layers);
  family.read(config, name, shape);
  shape.hidden = count("hidden_size", ranges.hidden);
  shape.heads = count("num_attention_heads", ranges.heads, family.absent_heads);
  shape.kv_heads = kv_heads_of(config, family, shape, name);
  shape.head_dim = head_dim_of(config, family, shape, name);
  // Where all layers have experts, files may lack the width of an MLP.
  const std::string mlp = own_key(family, "intermediate_size");
  const bool has_mlp = config.contains(mlp) || !config.contains("moe_intermediate_size");
  if (!mlp.empty() && shape.ffn_hidden == 0)
    shape.ffn_hidden = count(has_mlp ? "intermediate_size" : "moe_intermediate_size", ranges.ffn_hidden);
  shape.vocab = count("vocab_size", ranges.vocab, family.absent_vocab);
  shape.tie_embeddings = get_or<bool>(config, "tie_word_embeddings", family.absent_tied, name);
  shape.norm_eps =
      get_or<double>(config, own_key(family, "rms_norm_eps").c_str(), family.absent_norm_eps, name);
  const Json rope = family.absent_rotated < 1.0 ? take_rotated(config, family, name, shape) : config;
  shape.rope = rope_from_hugging_face(rope, family.absent_rope_theta, family.ropes_by_type, name);
  try {
    validate(shape);
  } catch (const InputError& error) {
    throw InputError(text(name, ": ", error.what()));
  }
  return shape;
}

Shape shape_to_plan_from_hugging_face(const Json& config, const std::string& name) {
  if (config.is_object() && !get_or<bool>(config, "computed", true, name)) {
    return counted_from_hugging_face(config, name);
  }
  try {
    return shape_from_hugging_face(config, name);
  } catch (const InputError&) {
    const Json inner = language_config(config, name);
    const std::string type = get_or<std::string>(inner, "model_type", "", name);
    try {
      return counted_from_hugging_face(config, name);
    } catch (const InputError&) {
      // Of a family that is computed, what computing lacks says more.
      if (!is_computed(type)) throw;
    }
    throw;
  }
}

Json shape_to_hugging_face(const Shape& shape, const std::string& dtype, int64_t max_positions) {
  if (shape.family == Family::kCounted) return counted_to_hugging_face(shape);
  const FamilyEntry& family = entry_of(shape.family);
  Json config = {{"architectures", Json::array({std::string(family.architecture)})},
                 {"model_type", std::string(family.model_type)},
                 {"hidden_size", shape.hidden},
                 {"intermediate_size", shape.ffn_hidden},
                 {"num_hidden_layers", shape.layers},
                 {"num_attention_heads", shape.heads},
                 {"num_key_value_heads", shape.kv_heads},
                 {"head_dim", shape.head_dim},
                 {"vocab_size", shape.vocab},
                 {"max_position_embeddings", max_positions},
                 {"rms_norm_eps", shape.norm_eps},
                 {"tie_word_embeddings", shape.tie_embeddings},
                 {"hidden_act", "silu"},
                 // The old keys: transformers reads them before and since version 5.
                 {"rope_theta", shape.rope.theta},
                 {"rope_scaling", rope_to_hugging_face(shape.rope)},
                 {"torch_dtype", dtype}};
  for (const auto& [common, own] : family.renamed) {
    if (!own.empty()) config[std::string(own)] = config.at(std::string(common));
    config.erase(std::string(common));
  }
  family.write(shape, config);
  return config;
}

namespace {

// One tensor of all experts: [experts, in, out], of gate and up with rows in turn; biases [experts, out].
void stack(const Parameter& parameter, HuggingFaceTensor& tensor) {
  const int64_t experts = parameter.stacked, rows = parameter.rows / experts, columns = parameter.columns;
  const bool vector = parameter.one_dimensional();
  const bool turns = std::ssize(parameter.groups) == 2 * experts;
  if (vector) {
    tensor.shape = {experts, rows};
  } else {
    tensor.shape = turns ? std::vector{experts, columns, rows} : std::vector{experts, rows, columns};
  }
  if (turns) tensor.order = {rows, rows * columns, /*halves=*/2, /*half_stride=*/1, /*row_stride=*/2, rows};
}

}  // namespace

std::vector<HuggingFaceTensor> hugging_face_tensors(const Bucket& bucket, const Parameter& parameter) {
  std::vector<HuggingFaceTensor> tensors;
  int64_t row_begin = 0;
  for (size_t i = 0; i < parameter.tensors.size(); ++i) {
    // One tensor has all groups, several have one each.
    const int64_t rows = parameter.tensors.size() == 1 ? parameter.rows : parameter.groups[i].rows;
    HuggingFaceTensor& tensor = tensors.emplace_back();
    tensor.name = bucket.path + parameter.tensors[i];
    tensor.row_begin = row_begin;
    tensor.rows = rows;
    tensor.columns = parameter.columns;
    tensor.order = {.block_rows = rows, .row_stride = tensor.columns};
    tensor.shape = {rows, tensor.columns};
    if (parameter.one_dimensional()) tensor.shape = {rows};
    if (parameter.depthwise) tensor.shape = {rows, 1, tensor.columns};
    if (parameter.stacked > 0) {
      stack(parameter, tensor);
    } else if (parameter.transposed) {
      tensor.shape = {tensor.columns, rows};
      tensor.order = {.block_rows = rows, .row_stride = 1, .column_stride = rows};
    }
    row_begin += rows;
  }
  SLUICE_ASSERT(row_begin == parameter.rows, parameter.name);
  return tensors;
}

}  // namespace sluice::model
