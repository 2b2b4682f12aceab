#include <algorithm>

#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kMixtralTensors[] = {
    {roles::kRouter, {"block_sparse_moe.gate.weight"}},
    {roles::kExpertsGateUp,
     {"block_sparse_moe.experts.{}.w1.weight", "block_sparse_moe.experts.{}.w3.weight"}},
    {roles::kExpertsDown, {"block_sparse_moe.experts.{}.w2.weight"}},
    {roles::kCorrection, {"block_sparse_moe.e_score_correction_bias"}}};

// Keys of the code with which MiniMax's files came. Other values would make another model.
void refuse_other_minimax(Reader& config) {
  config.only("scoring_func", "sigmoid");
  config.only("qk_norm_type", "per_layer");
  for (const char* key : {"use_qk_norm", "use_routing_bias"}) config.only(key, true);
  for (const char* key :
       {"layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta"})
    config.only(key, 1.0);
  config.only("shared_intermediate_size", 0);
  config.only("router_jitter_noise", 0.0);
  config.off("sliding_window");
  config.pass(
      {"shared_moe_mode", "mlp_intermediate_size", "use_mtp", "num_mtp_modules", "mtp_transformer_layers"});
  const base::Json* const types = config.find("attn_type_list");
  if (types != nullptr && std::ranges::any_of(*types, [](const base::Json& type) { return type != 1; }))
    config.refuse("attn_type_list", *types, "a list of ones, which are layers of attention");
}

}  // namespace

extern const Names kMixtralNames{kMixtralTensors};

void read_mixtral(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 8, .norm_eps = 1e-5, .rope_theta = 1e6}, outline);
  config.only("router_jitter_noise", 0.0);
  read_window(config, 0, outline);
  read_experts(config, width(config, "intermediate_size"), outline);
  outline.experts.normalised = true;
}

void read_minimax_m2(Reader& config, Outline& outline) {
  constexpr double kAll = 1.0;
  refuse_other_minimax(config);
  const int64_t turned = config.count_or(0, "rotary_dim", kModelRanges.head_dim);
  const int64_t width_of_head = config.count_or(128, "head_dim", kModelRanges.head_dim);
  const double part = static_cast<double>(turned) / static_cast<double>(width_of_head);
  read_decoder(config,
               {.kv_heads = 8,
                .head_dim = 128,
                .rope_theta = 5e6,
                .rotated = turned > 0 ? part : kAll,
                .turns_part = true},
               outline);
  outline.qk_norm = QkNorm::kAllHeads;
  read_experts(config, width(config, "intermediate_size"), outline);
  outline.experts.normalised = outline.experts.sigmoid = outline.experts.corrected = true;
}

}  // namespace sluice::model
