#include "model/family.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "model/attention_kind.h"
#include "model/config_keys.h"
#include "model/mlp_kind.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

using base::Json;

using base::get_or;

constexpr std::string_view kMistralKeys[] = {"sliding_window"};
constexpr std::string_view kQwenKeys[] = {"use_sliding_window", "sliding_window", "max_window_layers",
                                          "layer_types"};
constexpr std::string_view kPhiKeys[] = {"sliding_window", "resid_pdrop", "embd_pdrop",
                                         "original_max_position_embeddings"};
constexpr std::string_view kGraniteKeys[] = {"embedding_multiplier", "residual_multiplier",
                                             "attention_multiplier", "logits_scaling"};
constexpr std::string_view kSmolKeys[] = {"use_sliding_window", "sliding_window", "max_window_layers",
                                          "layer_types",        "no_rope_layers", "no_rope_layer_interval"};

// Where attention's rows lie in one tensor, and gate and up in another.
constexpr std::string_view kFusedQkv[] = {"self_attn.qkv_proj.weight"};
constexpr std::string_view kFusedGateUp[] = {"mlp.gate_up_proj.weight"};
constexpr TensorNames kPhiTensors[] = {{AttentionKind::kQkv, kFusedQkv}, {MlpKind::kGateUp, kFusedGateUp}};

// Norms behind the parts.
constexpr std::string_view kBehindAttention[] = {"post_attention_layernorm.weight"};
constexpr std::string_view kBehindMlp[] = {"post_feedforward_layernorm.weight"};
constexpr TensorNames kOlmoTensors[] = {{AttentionKind::kNorm, kBehindAttention},
                                        {MlpKind::kNorm, kBehindMlp}};

void read_llama(const Json&, const std::string&, Shape&) {}

void write_llama(const Shape&, Json& config) {
  config["attention_bias"] = false;
  config["mlp_bias"] = false;
}

Json window_or_null(const Shape& shape) { return shape.window > 0 ? Json(shape.window) : Json(); }

void read_window(const Json& config, int64_t absent, const std::string& name, Shape& shape) {
  if (config.contains("sliding_window") && config.at("sliding_window").is_null()) return;
  shape.window = config.contains("sliding_window")
                     ? base::require_in(config, "sliding_window", kShapeRanges.max_positions, name)
                     : absent;
}

void read_mistral(const Json& config, const std::string& name, Shape& shape) {
  read_window(config, 4096, name, shape);
}

void write_mistral(const Shape& shape, Json& config) { config["sliding_window"] = window_or_null(shape); }

// Windows are off unless a key of their own says otherwise, whatever their width.
void require_full_attention(const Json& config, const std::string& name) {
  require_off(config, "use_sliding_window", name);
  if (!config.contains("layer_types") || config.at("layer_types").is_null()) return;
  const Json& types = config.at("layer_types");
  if (!types.is_array()) refuse(name, "layer_types", types, "a list of types");
  for (const Json& type : types) {
    if (type != "full_attention") refuse(name, "layer_types", type, "full_attention");
  }
}

void read_qwen2(const Json& config, const std::string& name, Shape& shape) {
  require_full_attention(config, name);
  shape.qkv_bias = true;
}

void read_qwen3(const Json& config, const std::string& name, Shape& shape) {
  require_full_attention(config, name);
  shape.qk_norm = QkNorm::kEachHead;
}

void write_qwen2(const Shape&, Json& config) { config["use_sliding_window"] = false; }

void write_qwen3(const Shape& shape, Json& config) {
  write_qwen2(shape, config);
  config["attention_bias"] = false;
}

void read_phi3(const Json& config, const std::string& name, Shape& shape) {
  require_only(config, "resid_pdrop", 0.0, name);
  require_only(config, "embd_pdrop", 0.0, name);
  read_window(config, 0, name, shape);
}

void write_phi3(const Shape& shape, Json& config) {
  config["sliding_window"] = window_or_null(shape);
  config["original_max_position_embeddings"] = config.at("max_position_embeddings");
  config["pad_token_id"] = nullptr;  // its class has one that small vocabularies lack
}

double factor(const Json& config, const char* key, const std::string& name) {
  return config.contains(key) ? base::require_in(config, key, kShapeRanges.factor, name) : 1.0;
}

void read_granite(const Json& config, const std::string& name, Shape& shape) {
  shape.embedding_scale = factor(config, "embedding_multiplier", name);
  shape.residual_scale = factor(config, "residual_multiplier", name);
  shape.attention_scale = factor(config, "attention_multiplier", name);
  shape.logit_divisor = factor(config, "logits_scaling", name);
}

void write_granite(const Shape& shape, Json& config) {
  write_llama(shape, config);
  config["embedding_multiplier"] = shape.embedding_scale;
  config["residual_multiplier"] = shape.residual_scale;
  config["attention_multiplier"] = shape.attention_scale;
  config["logits_scaling"] = shape.logit_divisor;
}

// By layer, 1 where positions rotate; or every so many layers one where they don't.
void read_smollm3(const Json& config, const std::string& name, Shape& shape) {
  require_full_attention(config, name);
  const bool listed = config.contains("no_rope_layers") && !config.at("no_rope_layers").is_null();
  if (!listed) {
    const auto interval = get_or<int64_t>(config, "no_rope_layer_interval", 4, name);
    base::require_in_range(name + ": no_rope_layer_interval", interval, kShapeRanges.layers);
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      shape.unrotated.push_back((layer + 1) % interval == 0 ? 1 : 0);
    }
    return;
  }
  const Json& list = config.at("no_rope_layers");
  const bool fits = list.is_array() && static_cast<int64_t>(list.size()) >= shape.layers;
  if (!fits) refuse(name, "no_rope_layers", list, "a list with 0 or 1 for each layer");
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const Json& rotates = list.at(static_cast<size_t>(layer));
    if (rotates != 0 && rotates != 1) refuse(name, "no_rope_layers", rotates, "0 and 1 there");
    shape.unrotated.push_back(rotates == 1 ? 0 : 1);
  }
}

void write_smollm3(const Shape& shape, Json& config) {
  write_llama(shape, config);
  config["use_sliding_window"] = false;
  Json rotates = Json::array();
  for (int64_t layer = 0; layer < shape.layers; ++layer) rotates.push_back(shape.rotates(layer) ? 1 : 0);
  config["no_rope_layers"] = rotates;
  config["pad_token_id"] = nullptr;
}

void read_olmo2(const Json&, const std::string&, Shape& shape) {
  shape.norm_place = NormPlace::kBehind;
  shape.qk_norm = QkNorm::kAllHeads;
}

void write_olmo2(const Shape&, Json& config) { config["attention_bias"] = false; }

constexpr FamilyEntry kFamilies[] = {
    {.family = Family::kLlama,
     .model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .keys = {},
     .read = read_llama,
     .write = write_llama},
    {.family = Family::kMistral,
     .model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .absent_kv_heads = 8,
     .keys = kMistralKeys,
     .read = read_mistral,
     .write = write_mistral},
    {.family = Family::kQwen2,
     .model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .absent_kv_heads = 32,
     .keys = kQwenKeys,
     .read = read_qwen2,
     .write = write_qwen2},
    {.family = Family::kQwen3,
     .model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .absent_kv_heads = 32,
     .absent_head_dim = 128,
     .keys = kQwenKeys,
     .read = read_qwen3,
     .write = write_qwen3},
    {.family = Family::kPhi3,
     .model_type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .absent_norm_eps = 1e-5,
     .keys = kPhiKeys,
     .tensors = kPhiTensors,
     .read = read_phi3,
     .write = write_phi3},
    {.family = Family::kGranite,
     .model_type = "granite",
     .architecture = "GraniteForCausalLM",
     .keys = kGraniteKeys,
     .read = read_granite,
     .write = write_granite},
    {.family = Family::kSmolLm3,
     .model_type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .absent_kv_heads = 4,
     .absent_rope_theta = 2e6,
     .absent_tied = true,
     .keys = kSmolKeys,
     .read = read_smollm3,
     .write = write_smollm3},
    {.family = Family::kOlmo2,
     .model_type = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .absent_norm_eps = 1e-5,
     .keys = {},
     .tensors = kOlmoTensors,
     .read = read_olmo2,
     .write = write_olmo2},
};

}  // namespace

std::span<const FamilyEntry> families() { return kFamilies; }

const FamilyEntry& entry_of(Family family) {
  const auto* const found = std::ranges::find(kFamilies, family, &FamilyEntry::family);
  SLUICE_ASSERT(found != std::end(kFamilies), "a family that is not registered");
  return *found;
}

}  // namespace sluice::model
