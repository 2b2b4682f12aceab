#include <cmath>

#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/layer_of.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kAfmoeTensors[] = {
    {roles::kMlpNorm, {"pre_mlp_layernorm.weight"}},
    {roles::kMlpNormBehind, {"post_mlp_layernorm.weight"}},
    {roles::kRouter, {"mlp.router.gate.weight"}},
    {roles::kCorrection, {"mlp.expert_bias"}},
    {roles::kSharedGateUp, {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"}},
    {roles::kSharedDown, {"mlp.shared_experts.down_proj.weight"}}};

}  // namespace

extern const Names kAfmoeNames{kAfmoeTensors};

void read_afmoe(Reader& config, Outline& outline) {
  read_decoder(config, {.head_dim = 128, .norm_eps = 1e-5}, outline);
  config.only("score_func", "sigmoid");
  config.only("route_norm", true);
  config.pass({"load_balance_coeff", "use_grouped_mm", "num_limited_groups", "num_expert_groups"});
  outline.norm_place = NormPlace::kAround;
  outline.qk_norm = QkNorm::kEachHead;
  outline.gated = true;
  if (config.has("mup_enabled")) outline.embedding_scale = std::sqrt(static_cast<double>(outline.hidden));
  const int64_t dense = config.count_or(1, "num_dense_layers", {0, kModelRanges.layers.most});
  read_scored_experts(config,
                      {.dense = dense,
                       .shared = 2,
                       .count_key = "num_experts",
                       .shared_key = "num_shared_experts",
                       .factor_key = "route_scale"},
                      outline);
  const int64_t pattern = config.count_or(4, "global_attn_every_n_layers", kModelRanges.layers);
  read_window(config, 1024, outline);
  if (outline.window == 0) config.refuse("sliding_window", nullptr, "a window's width");
  read_layer_types(config, outline, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  turn_windows_alone(outline);
  change_attention(outline, [](Attention& own) { own.gates_apart = true; });
}

}  // namespace sluice::model
