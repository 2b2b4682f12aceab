#include "model/hugging_face.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "model/shape_ranges.h"

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
    "sliding_window",
};

// Keys that change nothing in the arithmetic of training.
constexpr std::array kIgnoredKeys = {
    "_name_or_path",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "use_cache",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "return_dict",
    "initializer_range",
    "id2label",
    "label2id",
    "max_length",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "num_beams",
    "unk_token_id",
    "max_sequence_length",
    "chunk_size_feed_forward",
};

[[noreturn]] void refuse(const std::string& name, const std::string& key, const Json& value,
                         const std::string& expected) {
  throw InputError(
      text(name, ": ", key, " is ", base::excerpt(value), " but Sluice computes only ", expected));
}

template <size_t N>
bool is_one_of(const std::array<const char*, N>& keys, const std::string& key) {
  return std::any_of(keys.begin(), keys.end(), [&](std::string_view known) { return known == key; });
}

// Null and false switch nothing on, whatever the key.
bool is_off(const Json& value) { return value.is_null() || value == Json(false); }

// InputError when the key is there and on.
void require_off(const Json& config, const std::string& key, const std::string& name) {
  if (config.contains(key) && !is_off(config.at(key))) refuse(name, key, config.at(key), "models without it");
}

// InputError when the key is there, not null, and not `only`.
void require_only(const Json& config, const std::string& key, const Json& only, const std::string& name) {
  if (config.contains(key) && !config.at(key).is_null() && config.at(key) != only) {
    refuse(name, key, config.at(key), text(key, " ", base::json_text(only)));
  }
}

bool is_mistral(const Json& config, const std::string& name) {
  const std::string type = base::require<std::string>(config, "model_type", name);
  if (type != "llama" && type != "mistral") {
    refuse(name, "model_type", type, "llama, and mistral without a sliding window");
  }
  const bool mistral = type == "mistral";
  require_only(config, "architectures", Json::array({mistral ? "MistralForCausalLM" : "LlamaForCausalLM"}),
               name);
  return mistral;
}

void refuse_unsupported(const Json& config, bool mistral, const std::string& name) {
  require_off(config, "attention_bias", name);
  require_off(config, "mlp_bias", name);
  require_off(config, "sliding_window", name);
  if (mistral && !config.contains("sliding_window")) {
    throw InputError(text(name, ": sliding_window is missing, which stands for 4096 in a mistral config; ",
                          "Sluice computes only models without it: write null to say so"));
  }
  require_only(config, "hidden_act", "silu", name);
  require_only(config, "pretraining_tp", 1, name);
  require_only(config, "attention_dropout", 0.0, name);
  require_only(config, "partial_rotary_factor", 1.0, name);
  for (const auto& [key, value] : config.items()) {
    if (is_one_of(kShapeKeys, key) || is_one_of(kIgnoredKeys, key) || is_off(value)) continue;
    throw InputError(text(name, ": ", key, " is ", base::excerpt(value),
                          ", a key that Sluice does not compute: remove it if it does not change the model"));
  }
}

// rope[key], or `fallback` when absent or null.
double factor_or(double fallback, const Json& rope, const std::string& key, const std::string& name) {
  if (!rope.contains(key) || rope.at(key).is_null()) return fallback;
  return base::require_in(rope, key, kShapeRanges.rope_factor, name);
}

double theta_or(double fallback, const Json& rope, const std::string& name) {
  if (!rope.contains("rope_theta") || rope.at("rope_theta").is_null()) return fallback;
  return base::require_in(rope, "rope_theta", kShapeRanges.rope_theta, name);
}

struct RopeType {
  std::string_view name;
  RopeScaling scaling;
  std::vector<std::string_view> keys;  // beside rope_type, type, rope_theta and partial_rotary_factor
};

const std::vector<RopeType>& rope_types() {
  static const std::vector<RopeType> types = {
      {"default", RopeScaling::kNone, {}},
      {"linear", RopeScaling::kLinear, {"factor"}},
      {"llama3",
       RopeScaling::kLlama3,
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}},
      {"yarn",
       RopeScaling::kYarn,
       {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow",
        "truncate"}},
  };
  return types;
}

const RopeType& rope_type_of(const Json& rope, const std::string& name) {
  const Json value = rope.contains("rope_type") ? rope.at("rope_type")
                     : rope.contains("type")    ? rope.at("type")
                                                : Json("default");
  for (const RopeType& type : rope_types()) {
    if (value == Json(std::string(type.name))) return type;
  }
  refuse(name, "rope_type", value, "default, linear, llama3 and yarn");
}

void refuse_unknown_rope_keys(const Json& rope, const RopeType& type, const std::string& name) {
  require_only(rope, "partial_rotary_factor", 1.0, name);
  require_only(rope, "truncate", true, name);
  for (const auto& [key, value] : rope.items()) {
    const bool common =
        key == "rope_type" || key == "type" || key == "rope_theta" || key == "partial_rotary_factor";
    const bool known = std::find(type.keys.begin(), type.keys.end(), key) != type.keys.end();
    if (common || known || value.is_null()) continue;
    throw InputError(text(name, ": ", key, " is ", base::excerpt(value), " but rope_type ", type.name,
                          " has no such key in Sluice"));
  }
}

// The dictionary of rotary parameters under either of its names, or an empty one; `key` is the one found.
Json rope_dictionary(const Json& config, const std::string& name, std::string& key) {
  const bool has_old = config.contains("rope_scaling") && !config.at("rope_scaling").is_null();
  const bool has_new = config.contains("rope_parameters") && !config.at("rope_parameters").is_null();
  if (has_old && has_new && config.at("rope_scaling") != config.at("rope_parameters")) {
    throw InputError(text(name, ": rope_scaling and rope_parameters disagree: remove one"));
  }
  key = has_new ? "rope_parameters" : "rope_scaling";
  if (!has_old && !has_new) return Json::object();
  if (!config.at(key).is_object()) refuse(name, key, config.at(key), "a dictionary or null here");
  return config.at(key);
}

Rope rope_from_hugging_face(const Json& config, const std::string& name) {
  std::string key;
  const Json dictionary = rope_dictionary(config, name, key);
  const std::string where = text(name, ": ", key);
  const RopeType& type = rope_type_of(dictionary, where);
  refuse_unknown_rope_keys(dictionary, type, where);

  Rope rope{.theta = theta_or(10000.0, config, name), .scaling = type.scaling};
  rope.theta = theta_or(rope.theta, dictionary, where);
  if (rope.scaling == RopeScaling::kNone) return rope;
  const auto factor = [&](const char* factor_key) {
    return base::require_in(dictionary, factor_key, kShapeRanges.rope_factor, where);
  };
  rope.factor = factor("factor");
  if (rope.scaling == RopeScaling::kLinear) return rope;

  const auto max_positions = get_or<int64_t>(config, "max_position_embeddings", 2048, name);
  rope.original_max_position_embeddings =
      get_or<int64_t>(dictionary, "original_max_position_embeddings", max_positions, where);
  if (rope.scaling == RopeScaling::kLlama3) {
    rope.low_freq_factor = factor("low_freq_factor");
    rope.high_freq_factor = factor("high_freq_factor");
  } else {
    rope.beta_fast = factor_or(rope.beta_fast, dictionary, "beta_fast", where);
    rope.beta_slow = factor_or(rope.beta_slow, dictionary, "beta_slow", where);
    rope.attention_factor = factor_or(0.0, dictionary, "attention_factor", where);
  }
  return rope;
}

Json rope_to_hugging_face(const Rope& rope) {
  switch (rope.scaling) {
    case RopeScaling::kNone: return nullptr;
    case RopeScaling::kLinear: return {{"rope_type", "linear"}, {"factor", rope.factor}};
    case RopeScaling::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", rope.factor},
              {"low_freq_factor", rope.low_freq_factor},
              {"high_freq_factor", rope.high_freq_factor},
              {"original_max_position_embeddings", rope.original_max_position_embeddings}};
    case RopeScaling::kYarn: break;
  }
  Json yarn = {{"rope_type", "yarn"},
               {"factor", rope.factor},
               {"original_max_position_embeddings", rope.original_max_position_embeddings},
               {"beta_fast", rope.beta_fast},
               {"beta_slow", rope.beta_slow}};
  if (rope.attention_factor > 0) yarn["attention_factor"] = rope.attention_factor;
  return yarn;
}

int64_t head_dim_of(const Json& config, const Shape& shape, const std::string& name) {
  if (config.contains("head_dim") && !config.at("head_dim").is_null()) {
    return base::require_in(config, "head_dim", kShapeRanges.head_dim, name);
  }
  if (shape.hidden % shape.heads != 0) {
    throw InputError(text(name, ": num_attention_heads ", shape.heads, " does not divide hidden_size ",
                          shape.hidden, " and head_dim is missing: add it"));
  }
  return shape.hidden / shape.heads;
}

// One name for each row group of the parameter.
std::vector<std::string> tensor_names(Role role, int64_t layer) {
  const auto in_layer = [&](const char* name) { return text("model.layers.", layer, ".", name, ".weight"); };
  switch (role) {
    case Role::kEmbedding: return {"model.embed_tokens.weight"};
    case Role::kAttentionNorm: return {in_layer("input_layernorm")};
    case Role::kQkv:
      return {in_layer("self_attn.q_proj"), in_layer("self_attn.k_proj"), in_layer("self_attn.v_proj")};
    case Role::kAttentionOut: return {in_layer("self_attn.o_proj")};
    case Role::kMlpNorm: return {in_layer("post_attention_layernorm")};
    case Role::kGateUp: return {in_layer("mlp.gate_proj"), in_layer("mlp.up_proj")};
    case Role::kDown: return {in_layer("mlp.down_proj")};
    case Role::kFinalNorm: return {"model.norm.weight"};
    case Role::kHead: return {"lm_head.weight"};
  }
  SLUICE_ASSERT(false, text("role ", static_cast<int>(role)));
}

}  // namespace

Shape shape_from_hugging_face(const Json& config, const std::string& name) {
  if (!config.is_object()) throw InputError(text(name, ": a config.json holds an object"));
  const bool mistral = is_mistral(config, name);
  refuse_unsupported(config, mistral, name);
  const ShapeRanges& ranges = kShapeRanges;
  const auto count = [&](const char* key, const base::Range<int64_t>& range) {
    return base::require_in(config, key, range, name);
  };

  Shape shape;
  shape.layers = count("num_hidden_layers", ranges.layers);
  shape.hidden = count("hidden_size", ranges.hidden);
  shape.heads = count("num_attention_heads", ranges.heads);
  // What transformers takes for an absent key; null means as many as heads in both.
  const bool has_kv_heads = config.contains("num_key_value_heads");
  const int64_t default_kv_heads = mistral && !has_kv_heads ? 8 : shape.heads;
  shape.kv_heads = get_or<int64_t>(config, "num_key_value_heads", default_kv_heads, name);
  shape.head_dim = head_dim_of(config, shape, name);
  shape.ffn_hidden = count("intermediate_size", ranges.ffn_hidden);
  shape.vocab = count("vocab_size", ranges.vocab);
  shape.tie_embeddings = get_or<bool>(config, "tie_word_embeddings", false, name);
  shape.norm_eps = get_or<double>(config, "rms_norm_eps", 1e-6, name);
  shape.rope = rope_from_hugging_face(config, name);
  try {
    validate(shape);
  } catch (const InputError& error) {
    throw InputError(text(name, ": ", error.what()));
  }
  return shape;
}

Json shape_to_hugging_face(const Shape& shape, const std::string& dtype, int64_t max_positions) {
  return {{"architectures", Json::array({"LlamaForCausalLM"})},
          {"model_type", "llama"},
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
          {"attention_bias", false},
          {"mlp_bias", false},
          // The old keys: transformers reads them before and since version 5.
          {"rope_theta", shape.rope.theta},
          {"rope_scaling", rope_to_hugging_face(shape.rope)},
          {"torch_dtype", dtype}};
}

std::vector<HuggingFaceTensor> hugging_face_tensors(const Bucket& bucket, const Parameter& parameter) {
  const std::vector<std::string> names = tensor_names(parameter.role, bucket.layer);
  SLUICE_ASSERT(names.size() == parameter.groups.size(), parameter.name);
  std::vector<HuggingFaceTensor> tensors;
  int64_t row_begin = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const int64_t rows = parameter.groups[i].rows;
    tensors.push_back({.name = names[i],
                       .row_begin = row_begin,
                       .rows = rows,
                       .transposed = parameter.role == Role::kAttentionOut || parameter.role == Role::kDown,
                       .vector = parameter.one_dimensional()});
    row_begin += rows;
  }
  return tensors;
}

}  // namespace sluice::model
