#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "base/text.h"
#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/families/recurrent_keys.h"
#include "model/layer.h"
#include "model/layer_of.h"

namespace sluice::model {
namespace {

using base::Json;
using base::text;

constexpr Mamba2Keys kNemotronMamba{"n_groups",
                                    "mamba_num_heads",
                                    "ssm_state_size",
                                    "mamba_head_dim",
                                    "conv_kernel",
                                    "use_conv_bias",
                                    "use_bias",
                                    nullptr,
                                    "layer_norm_epsilon",
                                    8,
                                    128,
                                    128,
                                    1e-5,
                                    64};

enum class LayerKind : uint8_t { kMamba, kAttention, kMlp, kExperts };

// The kinds of layers, by names or as a string of M, *, - and E.
std::vector<LayerKind> read_kinds(Reader& config) {
  static const std::map<std::string, LayerKind, std::less<>> kNames = {
      {"linear_attention", LayerKind::kMamba},
      {"mamba", LayerKind::kMamba},
      {"M", LayerKind::kMamba},
      {"full_attention", LayerKind::kAttention},
      {"attention", LayerKind::kAttention},
      {"*", LayerKind::kAttention},
      {"mlp", LayerKind::kMlp},
      {"-", LayerKind::kMlp},
      {"moe", LayerKind::kExperts},
      {"E", LayerKind::kExperts}};
  constexpr const char *kList = "layers_block_type", *kOther = "layer_types",
                       *kText = "hybrid_override_pattern";
  config.pass({kList, kOther, kText, "num_hidden_layers"});
  const char* const key = config.find(kList) != nullptr    ? kList
                          : config.find(kOther) != nullptr ? kOther
                                                           : kText;
  Json names = config.required(key);
  if (names.is_string()) {
    const auto letters = names.get<std::string>();
    names = Json::array();
    for (const char letter : letters) names.push_back(std::string(1, letter));
  }
  std::vector<LayerKind> kinds;
  if (!names.is_array() || names.empty()) config.refuse(key, names, "a list with a type for each layer");
  for (const Json& name : names) {
    const auto found = name.is_string() ? kNames.find(name.get<std::string>()) : kNames.end();
    if (found == kNames.end())
      config.refuse(text(key, "[", kinds.size(), "]"), name,
                    "linear_attention, full_attention, mlp and moe (M, *, - and E)");
    kinds.push_back(found->second);
  }
  return kinds;
}

// A layer has one part.
BlockType type_of(const Outline& outline, LayerKind kind) {
  BlockType type{
      .rotates = false, .experts = kind == LayerKind::kExperts, .recurrent = kind == LayerKind::kMamba};
  Layer layer = usual_layer(outline, type);
  layer.parts = {layer.parts[kind == LayerKind::kMlp || kind == LayerKind::kExperts ? 1 : 0]};
  type.own.value = std::make_shared<const Layer>(std::move(layer));
  return type;
}

// The shared expert has a key for its width, and always exists.
void read_nemotron_experts(Reader& config, Outline& outline) {
  config.only("moe_latent_size", nullptr);
  config.only("mlp_bias", false);
  read_scored_experts(config, {}, outline);
  outline.experts.shared_hidden = width(config, "moe_shared_expert_intermediate_size");
  outline.block_types.clear();
}

// Files have all of the class's keys for experts, whether or not a layer has any.
void pass_free_keys(Reader& config) {
  config.pass({"n_routed_experts", "n_shared_experts", "moe_intermediate_size",
               "moe_shared_expert_intermediate_size", "moe_latent_size", "moe_shared_expert_overlap",
               "num_experts_per_tok", "routed_scaling_factor", "n_group", "topk_group", "norm_topk_prob",
               "num_nextn_predict_layers", "mtp_layers_block_type", "mtp_hybrid_override_pattern"});
  config.pass({"expand", "chunk_size", "time_step_rank", "time_step_min", "time_step_max", "time_step_floor",
               "mamba_ssm_cache_dtype", "use_mamba_kernels", "num_logits_to_keep", "rescale_prenorm_residual",
               "residual_in_fp32"});
}

}  // namespace

// Only time_step_limit bounds steps, although transformers keeps those of whole sequences above
// time_step_min.
void read_nemotron_h(Reader& config, Outline& outline) {
  const std::vector<LayerKind> kinds = read_kinds(config);
  read_decoder(config,
               {.layers = std::ssize(kinds),
                .kv_heads = 8,
                .heads = 32,
                .head_dim = 128,
                .norm_eps = 1e-5,
                .mlp_biases = true,
                .norm_eps_key = "layer_norm_epsilon"},
               outline);
  config.only("attention_head_dim", outline.head_dim);
  config.only("mlp_hidden_act", "relu2");
  config.only("mamba_hidden_act", "silu");
  config.only("hidden_dropout", 0.0);
  config.off("mamba_proj_bias");
  config.off("sliding_window");
  pass_free_keys(config);
  outline.mlp_gate = false;
  outline.activation = Activation::kSquaredRelu;
  outline.mlp_bias = config.has("mlp_bias");
  read_mamba2(config, kNemotronMamba, outline);
  if (std::ranges::find(kinds, LayerKind::kExperts) != kinds.end()) read_nemotron_experts(config, outline);
  for (const LayerKind kind : kinds) outline.block_types.push_back(type_of(outline, kind));
}

}  // namespace sluice::model
