#include <optional>

#include "base/text.h"
#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/families/recurrent_keys.h"
#include "model/roles.h"
#include "model/shape_ranges.h"

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

void read_factors(Reader& config, Shape& shape) {
  const auto factor = [&](const char* key) { return config.number_or(1.0, key, kShapeRanges.factor); };
  shape.embedding_scale = factor("embedding_multiplier");
  shape.residual_scale = factor("residual_multiplier");
  shape.attention_scale = factor("attention_multiplier");
  shape.logit_divisor = factor("logits_scaling");
}

// The file has a base for each layer, 0 for layers without rotary positions. Sluice computes one base for
// layers with a window and one for the others.
void read_layer_thetas(Reader& config, Shape& shape) {
  constexpr const char* kKey = "layer_rope_theta";
  const base::Json* const thetas = config.find(kKey);
  if (thetas == nullptr) return;
  if (!thetas->is_array() || static_cast<int64_t>(thetas->size()) != shape.layers)
    config.refuse(kKey, *thetas, base::text("a list with a base for each of the ", shape.layers, " layers"));
  spread_types(shape);
  std::optional<double> full, windowed;
  for (size_t layer = 0; layer < shape.block_types.size(); ++layer) {
    BlockType& type = shape.block_types[layer];
    const base::Json& theta = thetas->at(layer);
    if (!theta.is_number() || theta < 0) config.refuse(kKey, theta, "numbers there, 0 or above");
    type.rotates = theta != 0;
    if (!type.rotates) continue;
    std::optional<double>& one = type.windowed ? windowed : full;
    if (one && theta != *one)
      config.refuse(kKey, theta, "one base for all layers with a window and one for all others");
    one = theta.get<double>();
    base::require_in_range(base::text(config.name(), ": ", kKey), *one, kShapeRanges.rope_theta);
  }
  if (windowed && windowed != full) shape.window_rope = shape.rope;
  if (windowed && shape.window_rope) shape.window_rope->theta = *windowed;
  if (full) shape.rope.theta = *full;
  drop_usual_types(shape);
}

void read_sinks_and_windows(Reader& config, Shape& shape) {
  shape.sinks = true;
  read_window(config, 128, shape);
  read_layer_types(config, shape, [&](int64_t layer) { return shape.window > 0 && layer % 4 != 0; });
  read_layer_thetas(config, shape);
}

}  // namespace

extern const Names kGraniteHybridNames{kGraniteTensors}, kGraniteWindowNames{kGraniteWindowTensors};

void read_granite(Reader& config, Shape& shape) {
  read_decoder(config, {}, shape);
  read_factors(config, shape);
}

void read_granite_swa(Reader& config, Shape& shape) {
  read_decoder(config, {.kv_heads = 4, .norm_eps = 1e-5, .tied = true}, shape);
  read_factors(config, shape);
  read_sinks_and_windows(config, shape);
}

// The router's softmax is over the chosen scores only.
void read_granite_moe(Reader& config, Shape& shape) {
  read_decoder(config, {}, shape);
  read_factors(config, shape);
  read_experts(config, width(config, "intermediate_size"), shape);
  shape.experts.normalised = true;
}

// The experts stand beside an MLP that all tokens visit.
void read_granite_moe_shared(Reader& config, Shape& shape) {
  read_granite_moe(config, shape);
  shape.experts.shared_hidden =
      config.count_or(0, "shared_intermediate_size", {0, kShapeRanges.ffn_hidden.most});
}

void read_granite_moe_swa(Reader& config, Shape& shape) {
  read_granite_moe_shared(config, shape);
  read_sinks_and_windows(config, shape);
}

// Models without experts have only the MLP that all tokens visit.
void read_granite_hybrid(Reader& config, Shape& shape) {
  read_decoder(config, {.ffn_key = "shared_intermediate_size"}, shape);
  if (config.count_or(8, "num_local_experts", {0, kShapeRanges.experts.most}) > 0) {
    if (config.find("num_local_experts") == nullptr)
      config.refuse("num_local_experts", "absent", "files that say it: add num_local_experts");
    read_experts(config, width(config, "intermediate_size"), shape);
    shape.experts.normalised = true;
    shape.experts.shared_hidden = shape.ffn_hidden;
  }
  config.off("attn_output_gate");
  config.pass({"num_experts_per_tok", "mamba_chunk_size"});
  read_factors(config, shape);
  const std::string positions = config.text_or("nope", "position_embedding_type");
  if (positions != "nope" && positions != "rope")
    config.refuse("position_embedding_type", positions, "rope, nope and null");
  shape.block_types.assign(static_cast<size_t>(shape.layers),
                           {.rotates = positions == "rope", .experts = shape.experts.count > 0});
  if (config.says("layer_types")) {
    read_recurrent_types(config, 1, shape);
  } else {
    for (BlockType& type : shape.block_types) type.recurrent = true;
  }
  read_mamba2(config, kGraniteMamba, shape);
}

}  // namespace sluice::model
