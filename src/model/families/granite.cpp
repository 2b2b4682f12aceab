#include <optional>

#include "base/text.h"
#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/families/recurrent_keys.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kGraniteTensors[] = {
    {roles::kGateUp, {"shared_mlp.input_linear.weight"}},
    {roles::kDown, {"shared_mlp.output_linear.weight"}},
    {roles::kRouter, {"block_sparse_moe.router.layer.weight"}},
    {roles::kExpertsGateUp, {"block_sparse_moe.input_linear.weight"}, Stack::kOutIn},
    {roles::kExpertsDown, {"block_sparse_moe.output_linear.weight"}, Stack::kOutIn},
    {roles::kSharedGateUp, {"shared_mlp.input_linear.weight"}},
    {roles::kSharedDown, {"shared_mlp.output_linear.weight"}}};

constexpr TensorNames kGraniteWindowTensors[] = {
    {roles::kRouter, {"block_sparse_moe.router.weight"}},
    {roles::kExpertsGateUp, {"block_sparse_moe.experts.gate_up_proj"}, Stack::kOutIn},
    {roles::kExpertsDown, {"block_sparse_moe.experts.down_proj"}, Stack::kOutIn},
    {roles::kSharedGateUp, {"shared_mlp.input_linear.weight"}},
    {roles::kSharedDown, {"shared_mlp.output_linear.weight"}}};

constexpr Mamba2Keys kGraniteMamba{"mamba_n_groups",
                                   "mamba_n_heads",
                                   "mamba_d_state",
                                   "mamba_d_head",
                                   "mamba_d_conv",
                                   "mamba_conv_bias",
                                   "mamba_proj_bias",
                                   "mamba_expand",
                                   "rms_norm_eps",
                                   1,
                                   128,
                                   256,
                                   1e-6};

void read_factors(Reader& config, Outline& outline) {
  const auto factor = [&](const char* key) { return config.number_or(1.0, key, kModelRanges.factor); };
  outline.embedding_scale = factor("embedding_multiplier");
  outline.residual_scale = factor("residual_multiplier");
  outline.attention_scale = factor("attention_multiplier");
  outline.logit_divisor = factor("logits_scaling");
}

// The file has a base for each layer, 0 for layers without rotary positions. Sluice computes one base for
// layers with a window and one for the others.
void read_layer_thetas(Reader& config, Outline& outline) {
  constexpr const char* kKey = "layer_rope_theta";
  const base::Json* const thetas = config.find(kKey);
  if (thetas == nullptr) return;
  if (!thetas->is_array() || static_cast<int64_t>(thetas->size()) != outline.layers)
    config.refuse(kKey, *thetas,
                  base::text("a list with a base for each of the ", outline.layers, " layers"));
  spread_types(outline);
  std::optional<double> full, windowed;
  for (size_t layer = 0; layer < outline.block_types.size(); ++layer) {
    BlockType& type = outline.block_types[layer];
    const base::Json& theta = thetas->at(layer);
    if (!theta.is_number() || theta < 0) config.refuse(kKey, theta, "numbers there, 0 or above");
    type.rotates = theta != 0;
    if (!type.rotates) continue;
    std::optional<double>& one = type.windowed ? windowed : full;
    if (one && theta != *one)
      config.refuse(kKey, theta, "one base for all layers with a window and one for all others");
    one = theta.get<double>();
    base::require_in_range(base::text(config.name(), ": ", kKey), *one, kModelRanges.rope_theta);
  }
  if (windowed && windowed != full) outline.window_rope = outline.rope;
  if (windowed && outline.window_rope) outline.window_rope->theta = *windowed;
  if (full) outline.rope.theta = *full;
  drop_usual_types(outline);
}

void read_sinks_and_windows(Reader& config, Outline& outline) {
  outline.sinks = true;
  read_window(config, 128, outline);
  read_layer_types(config, outline, [&](int64_t layer) { return outline.window > 0 && layer % 4 != 0; });
  read_layer_thetas(config, outline);
}

}  // namespace

extern const Names kGraniteHybridNames{kGraniteTensors}, kGraniteWindowNames{kGraniteWindowTensors};

void read_granite(Reader& config, Outline& outline) {
  read_decoder(config, {}, outline);
  read_factors(config, outline);
}

void read_granite_swa(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 4, .norm_eps = 1e-5, .tied = true}, outline);
  read_factors(config, outline);
  read_sinks_and_windows(config, outline);
}

// The router's softmax is over the chosen scores only.
void read_granite_moe(Reader& config, Outline& outline) {
  read_decoder(config, {}, outline);
  read_factors(config, outline);
  read_experts(config, width(config, "intermediate_size"), outline);
  outline.experts.normalised = true;
}

// The experts stand beside an MLP that all tokens visit.
void read_granite_moe_shared(Reader& config, Outline& outline) {
  read_granite_moe(config, outline);
  outline.experts.shared_hidden =
      config.count_or(0, "shared_intermediate_size", {0, kModelRanges.ffn_hidden.most});
}

void read_granite_moe_swa(Reader& config, Outline& outline) {
  read_granite_moe_shared(config, outline);
  read_sinks_and_windows(config, outline);
}

// Models without experts have only the MLP that all tokens visit.
void read_granite_hybrid(Reader& config, Outline& outline) {
  read_decoder(config, {.ffn_key = "shared_intermediate_size"}, outline);
  if (config.count_or(8, "num_local_experts", {0, kModelRanges.experts.most}) > 0) {
    if (config.find("num_local_experts") == nullptr)
      config.refuse("num_local_experts", "absent", "files that say it: add num_local_experts");
    read_experts(config, width(config, "intermediate_size"), outline);
    outline.experts.normalised = true;
    outline.experts.shared_hidden = outline.ffn_hidden;
  }
  config.off("attn_output_gate");
  config.pass({"num_experts_per_tok", "mamba_chunk_size"});
  read_factors(config, outline);
  const std::string positions = config.text_or("nope", "position_embedding_type");
  if (positions != "nope" && positions != "rope")
    config.refuse("position_embedding_type", positions, "rope, nope and null");
  outline.block_types.assign(static_cast<size_t>(outline.layers),
                             {.rotates = positions == "rope", .experts = outline.experts.count > 0});
  if (config.says("layer_types")) {
    read_recurrent_types(config, 1, outline);
  } else {
    for (BlockType& type : outline.block_types) type.recurrent = true;
  }
  read_mamba2(config, kGraniteMamba, outline);
}

}  // namespace sluice::model
