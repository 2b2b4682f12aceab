#include "model/counted.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/model_ranges.h"
#include "model/wrapped.h"

namespace sluice::model {
namespace {

using base::InputError;
using base::Json;
using base::text;

// Properties of a model_type's class that its fields do not give.
struct CountedType {
  std::string_view model_type;
  bool qkv_bias = false;           // regardless of attention_bias
  bool out_bias = true;            // attention_bias applies to the output, too
  QkNorm qk_norm = QkNorm::kNone;  // regardless of use_qk_norm
  NormPlace norm_place = NormPlace::kBefore;
  bool sinks = false;
  bool shared_gate = false;
  bool expert_biases = false;
  bool alternates = false;  // windows alternate, unless layer_types says otherwise
};

constexpr CountedType kTypes[] = {
    {.model_type = "deepseek_v2"},
    {.model_type = "deepseek_v3"},
    {.model_type = "glm4_moe", .out_bias = false},
    {.model_type = "gpt_oss", .sinks = true, .expert_biases = true, .alternates = true},
    {.model_type = "granitemoe"},
    {.model_type = "llama"},
    {.model_type = "mixtral"},
    {.model_type = "olmo2", .qk_norm = QkNorm::kAllHeads, .norm_place = NormPlace::kBehind},
    {.model_type = "olmoe", .qk_norm = QkNorm::kAllHeads},
    {.model_type = "qwen2", .qkv_bias = true, .out_bias = false},
    {.model_type = "qwen2_moe", .qkv_bias = true, .out_bias = false, .shared_gate = true},
    {.model_type = "qwen3", .qk_norm = QkNorm::kEachHead},
    {.model_type = "qwen3_moe", .qk_norm = QkNorm::kEachHead},
};

// Keys that change neither parameters nor, to any relevant degree, work and bytes.
constexpr const char* kFree[] = {
    "computed",  // our key: false if a family would compute the model
    "rms_norm_eps",
    "max_position_embeddings",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "rope_interleave",
    "partial_rotary_factor",
    "attention_dropout",
    "pretraining_tp",
    "initial_context_length",
    "no_rope_layers",
    "no_rope_layer_interval",
    "clip_qkv",
    "swiglu_limit",
    "embedding_multiplier",
    "residual_multiplier",
    "attention_multiplier",
    "logits_scaling",
    "resid_pdrop",
    "embd_pdrop",
    "original_max_position_embeddings",
    "qk_head_dim",
    "experts_per_token",
    "n_group",
    "topk_group",
    "topk_method",
    "scoring_func",
    "norm_topk_prob",
    "routed_scaling_factor",
    "aux_loss_alpha",
    "seq_aux",
    "ep_size",
    "num_nextn_predict_layers",
    "router_jitter_noise",
    "output_router_logits",
    // Keys that are read only if other keys switch them on.
    "use_qk_norm",
    "num_key_value_heads",
    "head_dim",
    "q_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "n_shared_experts",
    "shared_expert_intermediate_size",
    "first_k_dense_replace",
    "moe_layer_freq",
    "decoder_sparse_step",
    "mlp_only_layers",
    "attention_bias",
    "model_type",
};

constexpr std::string_view kActivations[] = {"silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh"};

CountedType type_of(const std::string& model_type) {
  const auto* const found = std::ranges::find(kTypes, model_type, &CountedType::model_type);
  return found == std::end(kTypes) ? CountedType{} : *found;
}

void refuse_other_activations(Reader& config) {
  const std::string activation = config.text_or("silu", "hidden_act");
  if (std::ranges::find(kActivations, activation) == std::end(kActivations))
    config.refuse("hidden_act", activation, "silu and gelu of gated MLPs");
}

void refuse_unknown_costs(Reader& config) {
  for (const char* const key : kFree) config.pass({key});
  const std::string key = config.unread();
  if (key.empty()) return;
  throw InputError(text(config.name(), ": ", key, " is ", base::excerpt(config.json().at(key)),
                        ", a key whose costs Sluice does not know: remove it if it changes neither "
                        "parameters nor arithmetic"));
}

void read_heads(Reader& config, Outline& outline) {
  const ModelRanges& ranges = kModelRanges;
  outline.heads = config.count("num_attention_heads", ranges.heads);
  if (config.find("kv_lora_rank") != nullptr) {
    Latent& latent = outline.latent;
    latent.kv_rank = config.count("kv_lora_rank", ranges.hidden);
    latent.q_rank = config.count_or(0, "q_lora_rank", ranges.hidden);
    latent.unrotated = config.count("qk_nope_head_dim", ranges.head_dim);
    latent.rotated = config.count("qk_rope_head_dim", ranges.head_dim);
    latent.values = config.count("v_head_dim", ranges.head_dim);
    outline.kv_heads = outline.heads;
    outline.head_dim = latent.unrotated + latent.rotated;
    return;
  }
  outline.kv_heads = config.count_or(outline.heads, "num_key_value_heads", ranges.heads);
  if (config.find("head_dim") == nullptr && outline.hidden % outline.heads != 0) {
    throw InputError(text(config.name(), ": num_attention_heads ", outline.heads,
                          " does not divide hidden_size ", outline.hidden,
                          " and head_dim is missing: add it"));
  }
  outline.head_dim = config.count_or(outline.hidden / outline.heads, "head_dim", ranges.head_dim);
}

// By transformers' rules: layer_types, if present. Otherwise all layers from max_window_layers on, or every
// second layer.
void read_windows(Reader& config, const CountedType& type, Outline& outline) {
  const bool off = config.find("use_sliding_window") != nullptr && !config.has("use_sliding_window");
  if (off || config.find("sliding_window") == nullptr) return;
  outline.window = config.count("sliding_window", kModelRanges.window);
  const int64_t first = config.find("use_sliding_window") != nullptr
                            ? config.count_or(0, "max_window_layers", {0, kModelRanges.layers.most})
                            : 0;
  for (int64_t layer = 0; layer < outline.layers; ++layer) {
    outline.block_types[static_cast<size_t>(layer)].windowed =
        type.alternates ? layer % 2 == 0 : layer >= first;
  }
  const Json* const types = config.find("layer_types");
  if (types == nullptr) return;
  if (static_cast<int64_t>(types->size()) != outline.layers)
    config.refuse("layer_types", *types,
                  text("a list with a type for each of the ", outline.layers, " layers"));
  for (size_t layer = 0; layer < outline.block_types.size(); ++layer)
    outline.block_types[layer].windowed = types->at(layer) != "full_attention";
}

void read_experts(Reader& config, const CountedType& type, Outline& outline) {
  const ModelRanges& ranges = kModelRanges;
  Experts& experts = outline.experts;
  // The number of experts has several names.
  for (const char* const key : {"n_routed_experts", "num_experts", "num_local_experts"})
    experts.count = config.count_or(experts.count, key, ranges.experts);
  if (experts.count == 0) return;
  experts.per_token = config.count("num_experts_per_tok", {1, experts.count});
  experts.hidden = config.count_or(outline.ffn_hidden, "moe_intermediate_size", ranges.ffn_hidden);
  experts.shared_hidden =
      config.find("n_shared_experts") != nullptr
          ? config.count("n_shared_experts", {0, ranges.experts.most}) * experts.hidden
          : config.count_or(0, "shared_expert_intermediate_size", {0, ranges.ffn_hidden.most});
  experts.shared_gate = type.shared_gate && experts.shared_hidden > 0;
  experts.biases = type.expert_biases;
  read_expert_layers(config, outline);
}

void refuse_other_layers(Reader& config) {
  const Json* const types = config.find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array()) config.refuse("layer_types", *types, "a list of types");
  for (size_t layer = 0; layer < types->size(); ++layer) {
    const Json& type = types->at(layer);
    if (type == "full_attention" || type == "sliding_attention" || type == "chunked_attention") continue;
    config.refuse(text("layer_types[", layer, "]"), type, "layers of attention");
  }
}

}  // namespace

Outline counted_from_hugging_face(const Json& whole, const std::string& name) {
  Json json = language_config(whole, name);
  json["computed"] = false;
  Outline outline{.family = base::require<std::string>(json, "model_type", name),
                  .counted = true,
                  .config = {std::make_shared<const Json>(std::move(json))}};
  Reader config(*outline.config.json, name);
  const CountedType type = type_of(outline.family);
  const ModelRanges& ranges = kModelRanges;
  refuse_other_activations(config);
  refuse_other_layers(config);
  outline.layers = config.count("num_hidden_layers", ranges.layers);
  outline.block_types.resize(static_cast<size_t>(outline.layers));
  outline.hidden = config.count("hidden_size", ranges.hidden);
  read_heads(config, outline);
  outline.ffn_hidden = config.count("intermediate_size", ranges.ffn_hidden);
  outline.vocab = config.count("vocab_size", ranges.vocab);
  outline.tie_embeddings = config.has("tie_word_embeddings");
  outline.qkv_bias = type.qkv_bias || config.has("attention_bias");
  outline.out_bias = type.out_bias && config.has("attention_bias");
  outline.qk_norm = type.qk_norm;
  if (outline.qk_norm == QkNorm::kNone && config.has("use_qk_norm")) outline.qk_norm = QkNorm::kEachHead;
  outline.norm_place = type.norm_place;
  outline.sinks = type.sinks;
  if (outline.latent.kv_rank == 0) read_windows(config, type, outline);
  read_experts(config, type, outline);
  if (std::ranges::none_of(outline.block_types, &BlockType::windowed)) outline.window = 0;
  drop_usual_types(outline);
  refuse_unknown_costs(config);
  try {
    validate(outline);
  } catch (const InputError& error) {
    throw InputError(text(name, ": ", error.what()));
  }
  return outline;
}

}  // namespace sluice::model
