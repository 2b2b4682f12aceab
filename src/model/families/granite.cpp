#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/families/recurrent_keys.h"
#include "model/roles.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

constexpr TensorNames kGraniteTensors[] = {{roles::kGateUp, {"shared_mlp.input_linear.weight"}},
                                           {roles::kDown, {"shared_mlp.output_linear.weight"}}};

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

}  // namespace

extern const Names kGraniteHybridNames{kGraniteTensors};

void read_granite(Reader& config, Shape& shape) {
  read_decoder(config, {}, shape);
  read_factors(config, shape);
}

// Experts of the larger ones, which files stack, are not computed.
void read_granite_hybrid(Reader& config, Shape& shape) {
  read_decoder(config, {.ffn_key = "shared_intermediate_size"}, shape);
  if (!config.says("num_local_experts"))
    config.refuse("num_local_experts", "absent", "models without experts: add num_local_experts = 0");
  config.only("num_local_experts", 0);
  config.off("attn_output_gate");
  config.pass({"num_experts_per_tok", "mamba_chunk_size"});
  read_factors(config, shape);
  const std::string positions = config.text_or("nope", "position_embedding_type");
  if (positions != "nope" && positions != "rope")
    config.refuse("position_embedding_type", positions, "rope, nope and null");
  shape.block_types.assign(static_cast<size_t>(shape.layers), {.rotates = positions == "rope"});
  if (config.says("layer_types")) {
    read_recurrent_types(config, 1, shape);
  } else {
    for (BlockType& type : shape.block_types) type.recurrent = true;
  }
  read_mamba2(config, kGraniteMamba, shape);
}

}  // namespace sluice::model
