#include "model/family.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "model/config_keys.h"
#include "model/deepseek_families.h"
#include "model/experts_config.h"
#include "model/hugging_face_rope.h"
#include "model/hybrid_families.h"
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
constexpr std::string_view kGemmaKeys[] = {
    "hidden_activation",       "query_pre_attn_scalar",   "attn_logit_softcapping",
    "final_logit_softcapping", "sliding_window",          "layer_types",
    "sliding_window_pattern",  "_sliding_window_pattern", "rope_local_base_freq"};
constexpr std::string_view kSmolKeys[] = {"use_sliding_window", "sliding_window", "max_window_layers",
                                          "layer_types",        "no_rope_layers", "no_rope_layer_interval"};
constexpr std::string_view kMixtralKeys[] = {"sliding_window", "num_experts", "num_local_experts",
                                             "num_experts_per_tok", "router_jitter_noise"};
constexpr std::string_view kQwenMoeKeys[] = {"num_local_experts",
                                             "use_sliding_window",
                                             "sliding_window",
                                             "max_window_layers",
                                             "layer_types",
                                             "num_experts",
                                             "num_experts_per_tok",
                                             "norm_topk_prob",
                                             "moe_intermediate_size",
                                             "decoder_sparse_step",
                                             "mlp_only_layers",
                                             "shared_expert_intermediate_size",
                                             "qkv_bias"};
constexpr std::string_view kOlmoeKeys[] = {"num_experts", "num_local_experts", "num_experts_per_tok",
                                           "norm_topk_prob", "clip_qkv"};

constexpr std::string_view kGptOssKeys[] = {
    "sliding_window", "layer_types",  "num_local_experts", "num_experts_per_tok",   "experts_per_token",
    "swiglu_alpha",   "swiglu_limit", "attention_bias",    "initial_context_length"};

void read_llama(const Json&, const std::string&, Shape&) {}

void write_llama(const Shape&, Json& config) {
  config["attention_bias"] = false;
  config["mlp_bias"] = false;
}

Json window_or_null(const Shape& shape) { return shape.window > 0 ? Json(shape.window) : Json(); }

void read_window(const Json& config, int64_t absent, const std::string& name, Shape& shape) {
  if (config.contains("sliding_window") && config.at("sliding_window").is_null()) return;
  shape.window = config.contains("sliding_window")
                     ? base::require_in(config, "sliding_window", kShapeRanges.window, name)
                     : absent;
}

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

// Whether a layer is windowed, as layer_types says, or where it is absent `otherwise`.
template <typename Otherwise>
bool reads_windowed(const Json& config, int64_t layer, const std::string& name, const Shape& shape,
                    Otherwise otherwise) {
  if (!config.contains("layer_types") || config.at("layer_types").is_null()) return otherwise(layer);
  const Json& types = config.at("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != shape.layers) {
    refuse(name, "layer_types", types,
           base::text("a list with a type for each of the ", shape.layers, " layers"));
  }
  const Json& type = types.at(static_cast<size_t>(layer));
  if (type != kFull && type != kSliding) {
    refuse(name, base::text("layer_types[", layer, "]"), type, base::text(kFull, " or ", kSliding));
  }
  return type == kSliding;
}

// Types of layers, to what the file's other keys have said of them. Those that are all as a shape's without
// types are left out.
template <typename Otherwise>
void read_layer_types(const Json& config, const std::string& name, Shape& shape, Otherwise otherwise) {
  if (shape.block_types.empty()) shape.block_types.resize(static_cast<size_t>(shape.layers));
  bool any = false;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const bool windowed = reads_windowed(config, layer, name, shape, otherwise);
    shape.block_types[static_cast<size_t>(layer)].windowed = windowed;
    any = any || windowed;
  }
  if (!any) shape.window = 0;
  const BlockType usual{.windowed = shape.window > 0};
  if (std::ranges::count(shape.block_types, usual) == shape.layers) shape.block_types.clear();
}

void write_layer_types(const Shape& shape, Json& config) {
  Json types = Json::array();
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    types.push_back(shape.block_type(layer).windowed ? kSliding : kFull);
  }
  config["layer_types"] = types;
  config["sliding_window"] = window_or_null(shape);
}

void read_mistral(const Json& config, const std::string& name, Shape& shape) {
  read_window(config, 4096, name, shape);
}

void write_mistral(const Shape& shape, Json& config) { config["sliding_window"] = window_or_null(shape); }

// Windows are off unless a key of their own says otherwise, whatever their width.
template <typename Otherwise>
void read_optional_window(const Json& config, int64_t absent, const std::string& name, Shape& shape,
                          Otherwise otherwise) {
  if (get_or<bool>(config, "use_sliding_window", false, name)) read_window(config, absent, name, shape);
  read_layer_types(config, name, shape, [&](int64_t layer) { return shape.window > 0 && otherwise(layer); });
}

void read_qwen_window(const Json& config, const std::string& name, Shape& shape) {
  const auto first = get_or<int64_t>(config, "max_window_layers", 28, name);
  read_optional_window(config, 4096, name, shape, [&](int64_t layer) { return layer >= first; });
}

void write_optional_window(const Shape& shape, Json& config) {
  config["use_sliding_window"] = shape.window > 0;
  if (shape.window > 0) write_layer_types(shape, config);
}

void read_qwen2(const Json& config, const std::string& name, Shape& shape) {
  read_qwen_window(config, name, shape);
  shape.qkv_bias = true;
}

void read_qwen3(const Json& config, const std::string& name, Shape& shape) {
  read_qwen_window(config, name, shape);
  shape.qk_norm = QkNorm::kEachHead;
}

void write_qwen2(const Shape& shape, Json& config) { write_optional_window(shape, config); }

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
  config["original_max_position_embeddings"] = shape.rope.scaling == RopeScaling::kLongRope
                                                   ? Json(shape.rope.original_max_position_embeddings)
                                                   : config.at("max_position_embeddings");
  config["pad_token_id"] = nullptr;  // its class has one that small vocabularies lack
}

// By layer, 1 where positions rotate; or every so many layers one where they don't.
void read_rotations(const Json& config, const std::string& name, Shape& shape) {
  const bool listed = config.contains("no_rope_layers") && !config.at("no_rope_layers").is_null();
  if (!listed) {
    const auto interval = get_or<int64_t>(config, "no_rope_layer_interval", 4, name);
    base::require_in_range(name + ": no_rope_layer_interval", interval, kShapeRanges.layers);
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      shape.block_types.push_back({.rotates = (layer + 1) % interval != 0});
    }
    return;
  }
  const Json& list = config.at("no_rope_layers");
  const bool fits = list.is_array() && static_cast<int64_t>(list.size()) >= shape.layers;
  if (!fits) refuse(name, "no_rope_layers", list, "a list with 0 or 1 for each layer");
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const Json& rotates = list.at(static_cast<size_t>(layer));
    if (rotates != 0 && rotates != 1) refuse(name, "no_rope_layers", rotates, "0 and 1 there");
    shape.block_types.push_back({.rotates = rotates == 1});
  }
}

void read_smollm3(const Json& config, const std::string& name, Shape& shape) {
  read_rotations(config, name, shape);
  read_optional_window(config, 0, name, shape,
                       [&](int64_t layer) { return !shape.block_type(layer).rotates; });
}

void write_smollm3(const Shape& shape, Json& config) {
  write_llama(shape, config);
  write_optional_window(shape, config);
  Json rotates = Json::array();
  for (int64_t layer = 0; layer < shape.layers; ++layer)
    rotates.push_back(shape.block_type(layer).rotates ? 1 : 0);
  config["no_rope_layers"] = rotates;
  config["pad_token_id"] = nullptr;
}

// A cap, `absent` where the key is; null: none.
double cap(const Json& config, const char* key, double absent, const std::string& name) {
  if (!config.contains(key)) return absent;
  return config.at(key).is_null() ? 0.0 : base::require_in(config, key, kShapeRanges.factor, name);
}

// What Gemma's generations have in common; every `pattern`-th layer attends to all that came before.
void read_gemma(const Json& config, const std::string& name, int64_t pattern, Shape& shape) {
  require_only(config, "hidden_activation", "gelu_pytorch_tanh", name);
  shape.activation = Activation::kGeluTanh;
  shape.norm_offset = 1.0;
  shape.norm_place = NormPlace::kAround;
  shape.embedding_scale =
      std::sqrt(static_cast<double>(base::require_in(config, "hidden_size", kShapeRanges.hidden, name)));
  const double scalar = config.contains("query_pre_attn_scalar")
                            ? base::require_in(config, "query_pre_attn_scalar", kShapeRanges.factor, name)
                            : 256.0;
  shape.attention_scale = 1 / std::sqrt(scalar);
  read_window(config, 4096, name, shape);
  read_layer_types(config, name, shape, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
}

void read_gemma2(const Json& config, const std::string& name, Shape& shape) {
  read_gemma(config, name, 2, shape);
  shape.score_cap = cap(config, "attn_logit_softcapping", 50.0, name);
  shape.logit_cap = cap(config, "final_logit_softcapping", 30.0, name);
}

void read_gemma3(const Json& config, const std::string& name, Shape& shape) {
  constexpr int64_t kPattern = 6;
  const auto old = get_or<int64_t>(config, "_sliding_window_pattern", kPattern, name);
  const auto pattern = get_or<int64_t>(config, "sliding_window_pattern", old, name);
  base::require_in_range(name + ": sliding_window_pattern", pattern, kShapeRanges.layers);
  read_gemma(config, name, pattern, shape);
  shape.qk_norm = QkNorm::kEachHead;
  shape.score_cap = cap(config, "attn_logit_softcapping", 0.0, name);
  shape.logit_cap = cap(config, "final_logit_softcapping", 0.0, name);
  if (shape.window > 0) shape.window_rope = window_rope_from_hugging_face(config, 10000.0, name);
}

void read_mixtral(const Json& config, const std::string& name, Shape& shape) {
  require_only(config, "router_jitter_noise", 0.0, name);
  read_window(config, 0, name, shape);
  read_experts(config, width(config, "intermediate_size", name), name, shape);
  shape.experts.normalised = true;
}

void write_mixtral(const Shape& shape, Json& config) {
  config["sliding_window"] = window_or_null(shape);
  config["num_local_experts"] = shape.experts.count;
  config["num_experts_per_tok"] = shape.experts.per_token;
}

// What both generations have in common.
void read_qwen_moe(const Json& config, const std::string& name, Shape& shape) {
  require_off(config, "use_sliding_window", name);
  read_experts(config, width(config, "moe_intermediate_size", name), name, shape);
  read_expert_layers(config, name, shape);
  drop_usual_types(shape);
}

void write_qwen_moe(const Shape& shape, Json& config) {
  write_experts(shape, config);
  write_expert_layers(shape, config);
  config["moe_intermediate_size"] = shape.experts.hidden;
  config["use_sliding_window"] = false;
}

void read_qwen2_moe(const Json& config, const std::string& name, Shape& shape) {
  require_only(config, "qkv_bias", true, name);
  read_qwen_moe(config, name, shape);
  shape.qkv_bias = true;
  shape.experts.shared_hidden = width(config, "shared_expert_intermediate_size", name);
  shape.experts.shared_gate = true;
}

void write_qwen2_moe(const Shape& shape, Json& config) {
  write_qwen_moe(shape, config);
  config["shared_expert_intermediate_size"] = shape.experts.shared_hidden;
}

void read_qwen3_moe(const Json& config, const std::string& name, Shape& shape) {
  read_qwen_moe(config, name, shape);
  shape.qk_norm = QkNorm::kEachHead;
}

void write_qwen3_moe(const Shape& shape, Json& config) {
  write_qwen_moe(shape, config);
  config["attention_bias"] = false;
}

void read_olmoe(const Json& config, const std::string& name, Shape& shape) {
  require_only(config, "clip_qkv", nullptr, name);
  shape.qk_norm = QkNorm::kAllHeads;
  read_experts(config, width(config, "intermediate_size", name), name, shape);
}

void write_olmoe(const Shape& shape, Json& config) {
  write_experts(shape, config);
  config["attention_bias"] = false;
  config["pad_token_id"] = nullptr;
}

Json cap_or_null(double cap) { return cap > 0 ? Json(cap) : Json(); }

// Hidden widths say the embedding's factor, so no key does.
void write_gemma(const Shape& shape, Json& config) {
  config.erase("hidden_act");
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["attention_bias"] = false;
  const double scalar = 1 / (shape.attention_scale * shape.attention_scale);
  const bool whole = std::abs(scalar - std::round(scalar)) < 1e-9 * scalar;
  config["query_pre_attn_scalar"] = whole ? Json(std::llround(scalar)) : Json(scalar);
  config["attn_logit_softcapping"] = cap_or_null(shape.score_cap);
  config["final_logit_softcapping"] = cap_or_null(shape.logit_cap);
  write_layer_types(shape, config);
  config["pad_token_id"] = nullptr;
}

void write_gemma3(const Shape& shape, Json& config) {
  write_gemma(shape, config);
  const Rope& local = shape.window_rope ? *shape.window_rope : shape.rope;
  if (local.scaling == RopeScaling::kNone) {
    config["rope_local_base_freq"] = local.theta;
    return;
  }
  const auto with_theta = [](const Rope& rope) {
    Json json = rope_to_hugging_face(rope);
    if (json.is_null()) json = {{"rope_type", "default"}};
    json["rope_theta"] = rope.theta;
    return json;
  };
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config["rope_parameters"] = {{kFull, with_theta(shape.rope)}, {kSliding, with_theta(local)}};
}

// Experts may stand in MXFP4 (checkpoint/mxfp4.h); what is written is not quantised.
void read_gpt_oss(const Json& config, const std::string& name, Shape& shape) {
  require_only(config, "attention_bias", true, name);
  shape.qkv_bias = shape.out_bias = shape.sinks = true;
  read_experts(config, width(config, "intermediate_size", name), name, shape);
  require_only(config, "experts_per_token", shape.experts.per_token, name);
  shape.experts.normalised = true;  // a softmax of the chosen scores alone
  shape.experts.biases = true;
  shape.activation = Activation::kClampedSilu;
  const auto factor_or = [&](double absent, const char* key) {
    return config.contains(key) ? base::require_in(config, key, kShapeRanges.factor, name) : absent;
  };
  shape.gate_slope = factor_or(1.702, "swiglu_alpha");
  shape.gate_limit = factor_or(7.0, "swiglu_limit");
  read_window(config, 128, name, shape);
  read_layer_types(config, name, shape, [](int64_t layer) { return layer % 2 == 0; });
  for (BlockType& type : shape.block_types) type.experts = true;
}

void write_gpt_oss(const Shape& shape, Json& config) {
  config["attention_bias"] = true;
  config["num_local_experts"] = shape.experts.count;
  config["num_experts_per_tok"] = shape.experts.per_token;
  config["swiglu_alpha"] = shape.gate_slope;
  config["swiglu_limit"] = shape.gate_limit;
  write_layer_types(shape, config);
  config["pad_token_id"] = nullptr;
}

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
     .read = read_olmo2,
     .write = write_olmo2},
    {.family = Family::kGemma2,
     .model_type = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .absent_kv_heads = 4,
     .absent_head_dim = 256,
     .absent_tied = true,
     .hidden_act = "gelu_pytorch_tanh",
     .keys = kGemmaKeys,
     .read = read_gemma2,
     .write = write_gemma},
    {.family = Family::kGemma3,
     .model_type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .absent_kv_heads = 4,
     .absent_heads = 8,
     .absent_vocab = 262208,
     .absent_head_dim = 256,
     .absent_rope_theta = 1e6,
     .absent_tied = true,
     .hidden_act = "gelu_pytorch_tanh",
     .ropes_by_type = true,
     .keys = kGemmaKeys,
     .read = read_gemma3,
     .write = write_gemma3},
    {.family = Family::kMixtral,
     .model_type = "mixtral",
     .architecture = "MixtralForCausalLM",
     .absent_kv_heads = 8,
     .absent_norm_eps = 1e-5,
     .absent_rope_theta = 1e6,
     .keys = kMixtralKeys,
     .tensors = kMixtralTensors,
     .read = read_mixtral,
     .write = write_mixtral},
    {.family = Family::kQwen2Moe,
     .model_type = "qwen2_moe",
     .architecture = "Qwen2MoeForCausalLM",
     .absent_kv_heads = 16,
     .keys = kQwenMoeKeys,
     .read = read_qwen2_moe,
     .write = write_qwen2_moe},
    {.family = Family::kQwen3Moe,
     .model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .absent_kv_heads = 4,
     .keys = kQwenMoeKeys,
     .read = read_qwen3_moe,
     .write = write_qwen3_moe},
    {.family = Family::kOlmoe,
     .model_type = "olmoe",
     .architecture = "OlmoeForCausalLM",
     .absent_norm_eps = 1e-5,
     .keys = kOlmoeKeys,
     .read = read_olmoe,
     .write = write_olmoe},
    {.family = Family::kGptOss,
     .model_type = "gpt_oss",
     .architecture = "GptOssForCausalLM",
     .absent_kv_heads = 8,
     .absent_head_dim = 64,
     .absent_norm_eps = 1e-5,
     .absent_rope_theta = 150000.0,
     .biases = true,
     .keys = kGptOssKeys,
     .tensors = kGptOssTensors,
     .read = read_gpt_oss,
     .write = write_gpt_oss},
    {.family = Family::kGlm4Moe,
     .model_type = "glm4_moe",
     .architecture = "Glm4MoeForCausalLM",
     .absent_kv_heads = 8,
     .absent_norm_eps = 1e-5,
     .biases = true,
     .absent_rotated = 0.5,
     .keys = kGlmKeys,
     .tensors = kGlmTensors,
     .read = read_glm4_moe,
     .write = write_glm4_moe},
    {.family = Family::kDeepSeekV3,
     .model_type = "deepseek_v3",
     .architecture = "DeepseekV3ForCausalLM",
     .biases = true,
     .keys = kDeepSeekKeys,
     .tensors = kGlmTensors,
     .read = read_deepseek_v3,
     .write = write_deepseek_v3},
    {.family = Family::kOlmoHybrid,
     .model_type = "olmo_hybrid",
     .architecture = "OlmoHybridForCausalLM",
     .keys = kOlmoHybridKeys,
     .tensors = kOlmoHybridTensors,
     .read = read_olmo_hybrid,
     .write = write_olmo_hybrid},
    {.family = Family::kQwen3_5,
     .model_type = "qwen3_5_text",
     .architecture = "Qwen3_5ForCausalLM",
     .absent_kv_heads = 4,
     .absent_head_dim = 256,
     .absent_rotated = 0.25,
     .keys = kQwenHybridKeys,
     .tensors = kQwen3_5Tensors,
     .read = read_qwen3_5,
     .write = write_qwen3_5},
    {.family = Family::kQwen3_5Moe,
     .model_type = "qwen3_5_moe_text",
     .architecture = "Qwen3_5MoeForCausalLM",
     .absent_kv_heads = 2,
     .absent_head_dim = 256,
     .absent_rotated = 0.25,
     .keys = kQwenHybridKeys,
     .tensors = kQwen3_5Tensors,
     .read = read_qwen3_5_moe,
     .write = write_qwen3_5_moe},
    {.family = Family::kQwen3Next,
     .model_type = "qwen3_next",
     .architecture = "Qwen3NextForCausalLM",
     .absent_kv_heads = 2,
     .absent_head_dim = 256,
     .absent_rotated = 0.25,
     .keys = kQwenHybridKeys,
     .tensors = kQwen3NextTensors,
     .read = read_qwen3_next,
     .write = write_qwen3_next},
    {.family = Family::kGraniteHybrid,
     .model_type = "granitemoehybrid",
     .architecture = "GraniteMoeHybridForCausalLM",
     .renamed = kGraniteHybridNames,
     .keys = kGraniteHybridKeys,
     .tensors = kGraniteHybridTensors,
     .read = read_granite_hybrid,
     .write = write_granite_hybrid},
    {.family = Family::kMamba2,
     .model_type = "mamba2",
     .architecture = "Mamba2ForCausalLM",
     .absent_kv_heads = 8,
     .absent_head_dim = 64,
     .absent_norm_eps = 1e-5,
     .trunk = "backbone",
     .renamed = kMamba2Names,
     .keys = kMamba2Keys,
     .tensors = kMamba2Tensors,
     .read = read_mamba2_model,
     .write = write_mamba2_model},
    {.family = Family::kGla,
     .model_type = "gla",
     .architecture = "GLAForCausalLM",
     .hidden_act = "swish",
     .renamed = kGlaNames,
     .keys = kGlaKeys,
     .tensors = kGlaTensors,
     .read = read_gla_model,
     .write = write_gla_model},
};

}  // namespace

std::span<const FamilyEntry> families() { return kFamilies; }

const FamilyEntry& entry_of(Family family) {
  static constexpr FamilyEntry kNone{.family = Family::kCounted, .keys = {}};  // of no file that is read
  if (family == Family::kCounted) return kNone;
  const auto* const found = std::ranges::find(kFamilies, family, &FamilyEntry::family);
  SLUICE_ASSERT(found != std::end(kFamilies), "a family that is not registered");
  return *found;
}

void name_tensors(const Shape& shape, Weight& weight) {
  for (const TensorNames& names : entry_of(shape.family).tensors) {
    if (names.role != weight.role) continue;
    weight.tensors.assign(names.tensors.begin(), names.tensors.end());
    if (names.stacked) weight.stacked = shape.experts.count;
  }
}

}  // namespace sluice::model
