#include "model/counted.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "model/config_keys.h"
#include "model/experts_config.h"
#include "model/shape_ranges.h"
#include "model/wrapped.h"

namespace sluice::model {
namespace {

using base::get_or;
using base::InputError;
using base::Json;
using base::text;

// What a model_type's class does that its fields do not say.
struct CountedType {
  std::string_view model_type;
  bool qkv_bias = false;           // whatever attention_bias says
  bool out_bias = true;            // attention_bias means that of the output, too
  QkNorm qk_norm = QkNorm::kNone;  // whatever use_qk_norm says
  NormPlace norm_place = NormPlace::kBefore;
  bool sinks = false;
  bool shared_gate = false;
  bool expert_biases = false;
  bool alternates = false;  // windows, where layer_types doesn't say so
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

// Keys that decide costs; each is read below.
constexpr std::string_view kRead[] = {
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "head_dim",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "tie_word_embeddings",
    "hidden_act",
    "attention_bias",
    "use_qk_norm",
    "layer_types",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "n_shared_experts",
    "first_k_dense_replace",
    "moe_layer_freq",
    "decoder_sparse_step",
    "mlp_only_layers",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
};

// Keys whose value changes neither parameters nor, by more than a trifle, work and bytes.
constexpr std::string_view kFree[] = {
    "architectures",
    "computed",  // ours: false where counted_to_hugging_face wrote the fields
    "auto_map",
    "quantization_config",
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
    "router_aux_loss_coef",
    "router_jitter_noise",
    "output_router_logits",
};

constexpr std::string_view kActivations[] = {"silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh"};

bool is_one_of(std::span<const std::string_view> known, std::string_view value) {
  return std::ranges::find(known, value) != known.end();
}

CountedType type_of(const std::string& model_type) {
  const auto* const found = std::ranges::find(kTypes, model_type, &CountedType::model_type);
  return found == std::end(kTypes) ? CountedType{} : *found;
}

void refuse_unknown(const Json& config, const std::string& name) {
  for (const auto& [key, value] : config.items()) {
    if (is_one_of(kRead, key) || is_one_of(kFree, key) || changes_no_arithmetic(key) || says_nothing(value))
      continue;
    throw InputError(text(name, ": ", key, " is ", base::excerpt(value),
                          ", a key whose costs Sluice does not know: remove it if it changes neither "
                          "parameters nor arithmetic"));
  }
  const auto activation = get_or<std::string>(config, "hidden_act", "silu", name);
  if (!is_one_of(kActivations, activation)) {
    refuse(name, "hidden_act", activation, "silu and gelu of gated MLPs");
  }
}

// Fields by the name of the file.
class Fields {
 public:
  Fields(const Json& config, const std::string& name) : config_(config), name_(name) {}

  bool has(const char* key) const { return config_.contains(key) && !config_.at(key).is_null(); }
  int64_t count(const char* key, const base::Range<int64_t>& range) const {
    return base::require_in(config_, key, range, name_);
  }
  int64_t count_or(int64_t absent, const char* key, const base::Range<int64_t>& range) const {
    return has(key) ? count(key, range) : absent;
  }
  bool flag(const char* key) const { return get_or<bool>(config_, key, false, name_); }
  // The first of several names for one thing, or null.
  const char* first_of(std::initializer_list<const char*> keys) const {
    for (const char* const key : keys) {
      if (has(key)) return key;
    }
    return nullptr;
  }
  const Json& at(const char* key) const { return config_.at(key); }
  const Json& config() const { return config_; }
  const std::string& name() const { return name_; }

 private:
  const Json& config_;
  std::string name_;
};

void read_heads(const Fields& fields, Shape& shape) {
  const ShapeRanges& ranges = kShapeRanges;
  shape.heads = fields.count("num_attention_heads", ranges.heads);
  if (fields.has("kv_lora_rank")) {
    Latent& latent = shape.latent;
    latent.kv_rank = fields.count("kv_lora_rank", ranges.hidden);
    latent.q_rank = fields.count_or(0, "q_lora_rank", ranges.hidden);
    latent.unrotated = fields.count("qk_nope_head_dim", ranges.head_dim);
    latent.rotated = fields.count("qk_rope_head_dim", ranges.head_dim);
    latent.values = fields.count("v_head_dim", ranges.head_dim);
    shape.kv_heads = shape.heads;
    shape.head_dim = latent.unrotated + latent.rotated;
    return;
  }
  shape.kv_heads = fields.count_or(shape.heads, "num_key_value_heads", ranges.heads);
  if (!fields.has("head_dim") && shape.hidden % shape.heads != 0) {
    throw InputError(text(fields.name(), ": num_attention_heads ", shape.heads,
                          " does not divide hidden_size ", shape.hidden, " and head_dim is missing: add it"));
  }
  shape.head_dim = fields.count_or(shape.hidden / shape.heads, "head_dim", ranges.head_dim);
}

// By transformers' rules: layer_types says it of each layer; without it all layers behind max_window_layers,
// or every second one.
void read_windows(const Fields& fields, const CountedType& type, Shape& shape) {
  const bool off = fields.has("use_sliding_window") && !fields.flag("use_sliding_window");
  if (off || !fields.has("sliding_window")) return;
  shape.window = fields.count("sliding_window", kShapeRanges.window);
  const int64_t first = fields.has("use_sliding_window")
                            ? fields.count_or(0, "max_window_layers", {0, kShapeRanges.layers.most})
                            : 0;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    shape.block_types[static_cast<size_t>(layer)].windowed =
        type.alternates ? layer % 2 == 0 : layer >= first;
  }
  if (!fields.has("layer_types")) return;
  const Json& types = fields.at("layer_types");
  if (static_cast<int64_t>(types.size()) != shape.layers) {
    refuse(fields.name(), "layer_types", types, "a type for each layer");
  }
  for (size_t layer = 0; layer < shape.block_types.size(); ++layer) {
    shape.block_types[layer].windowed = types[layer] != "full_attention";
  }
}

void read_experts(const Fields& fields, const CountedType& type, Shape& shape) {
  const ShapeRanges& ranges = kShapeRanges;
  const char* const count = fields.first_of({"num_local_experts", "num_experts", "n_routed_experts"});
  if (count == nullptr) return;
  Experts& experts = shape.experts;
  experts.count = fields.count(count, ranges.experts);
  experts.per_token = fields.count("num_experts_per_tok", {1, experts.count});
  experts.hidden = fields.count_or(shape.ffn_hidden, "moe_intermediate_size", ranges.ffn_hidden);
  experts.shared_hidden =
      fields.has("n_shared_experts")
          ? fields.count("n_shared_experts", {0, ranges.experts.most}) * experts.hidden
          : fields.count_or(0, "shared_expert_intermediate_size", {0, ranges.ffn_hidden.most});
  experts.shared_gate = type.shared_gate && experts.shared_hidden > 0;
  experts.biases = type.expert_biases;
  read_expert_layers(fields.config(), fields.name(), shape);
}

void refuse_other_layers(const Fields& fields) {
  if (!fields.has("layer_types")) return;
  const Json& types = fields.at("layer_types");
  if (!types.is_array()) refuse(fields.name(), "layer_types", types, "a list of types");
  for (size_t layer = 0; layer < types.size(); ++layer) {
    const Json& type = types[layer];
    if (type == "full_attention" || type == "sliding_attention" || type == "chunked_attention") continue;
    refuse(fields.name(), text("layer_types[", layer, "]"), type, "layers of attention");
  }
}

}  // namespace

Shape counted_from_hugging_face(const Json& whole, const std::string& name) {
  const Json config = language_config(whole, name);
  Shape shape{.family = Family::kCounted};
  shape.counted = base::require<std::string>(config, "model_type", name);
  refuse_unknown(config, name);
  const CountedType type = type_of(shape.counted);
  const Fields fields(config, name);
  const ShapeRanges& ranges = kShapeRanges;
  refuse_other_layers(fields);
  shape.layers = fields.count("num_hidden_layers", ranges.layers);
  shape.block_types.resize(static_cast<size_t>(shape.layers));
  shape.hidden = fields.count("hidden_size", ranges.hidden);
  read_heads(fields, shape);
  shape.ffn_hidden = fields.count("intermediate_size", ranges.ffn_hidden);
  shape.vocab = fields.count("vocab_size", ranges.vocab);
  shape.tie_embeddings = fields.flag("tie_word_embeddings");
  shape.qkv_bias = type.qkv_bias || fields.flag("attention_bias");
  shape.out_bias = type.out_bias && fields.flag("attention_bias");
  shape.qk_norm = type.qk_norm;
  if (shape.qk_norm == QkNorm::kNone && fields.flag("use_qk_norm")) shape.qk_norm = QkNorm::kEachHead;
  shape.norm_place = type.norm_place;
  shape.sinks = type.sinks;
  if (shape.latent.kv_rank == 0) read_windows(fields, type, shape);
  read_experts(fields, type, shape);
  if (std::ranges::none_of(shape.block_types, &BlockType::windowed)) shape.window = 0;
  drop_usual_types(shape);
  try {
    validate(shape);
  } catch (const InputError& error) {
    throw InputError(text(name, ": ", error.what()));
  }
  return shape;
}

Json counted_to_hugging_face(const Shape& shape) {
  const CountedType type = type_of(shape.counted);
  Json config = {{"model_type", shape.counted},
                 {"computed", false},
                 {"hidden_size", shape.hidden},
                 {"intermediate_size", shape.ffn_hidden},
                 {"num_hidden_layers", shape.layers},
                 {"num_attention_heads", shape.heads},
                 {"vocab_size", shape.vocab},
                 {"tie_word_embeddings", shape.tie_embeddings},
                 {"attention_bias", shape.out_bias || (shape.qkv_bias && !type.qkv_bias)},
                 {"use_qk_norm", shape.qk_norm == QkNorm::kEachHead}};
  const Latent& latent = shape.latent;
  if (latent.kv_rank > 0) {
    config.update({{"kv_lora_rank", latent.kv_rank},
                   {"qk_nope_head_dim", latent.unrotated},
                   {"qk_rope_head_dim", latent.rotated},
                   {"v_head_dim", latent.values}});
    if (latent.q_rank > 0) config["q_lora_rank"] = latent.q_rank;
  } else {
    config.update({{"num_key_value_heads", shape.kv_heads}, {"head_dim", shape.head_dim}});
  }
  if (shape.window > 0) {
    config["sliding_window"] = shape.window;
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      config["layer_types"].push_back(shape.block_type(layer).windowed ? "sliding_attention"
                                                                       : "full_attention");
    }
  }
  const Experts& experts = shape.experts;
  if (experts.count == 0) return config;
  config.update({{"num_experts", experts.count},
                 {"num_experts_per_tok", experts.per_token},
                 {"moe_intermediate_size", experts.hidden},
                 {"shared_expert_intermediate_size", experts.shared_hidden}});
  write_expert_layers(shape, config);
  return config;
}

}  // namespace sluice::model
