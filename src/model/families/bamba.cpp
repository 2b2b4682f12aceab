#include "base/text.h"
#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/families/recurrent_keys.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kBambaTensors[] = {
    {roles::kMlpNorm, {"pre_ff_layernorm.weight"}},
    {roles::kGateUp, {"feed_forward.gate_proj.weight", "feed_forward.up_proj.weight"}},
    {roles::kDown, {"feed_forward.down_proj.weight"}},
    {roles::kFinalNorm, {"model.final_layernorm.weight"}}};

constexpr Mamba2Keys kBambaMamba{"mamba_n_groups",
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
                                 1e-5};

}  // namespace

extern const Names kBambaNames{kBambaTensors};

// The file lists the layers of attention; without a list all are recurrent. The run sets its own loss on the
// size of logits.
void read_bamba(Reader& config, Outline& outline) {
  constexpr const char* kKey = "attn_layer_indices";
  read_decoder(config, {.kv_heads = 8, .norm_eps = 1e-5, .rotated = 0.5}, outline);
  config.pass({"mamba_chunk_size", "num_logits_to_keep", "z_loss_coefficient"});
  outline.block_types.assign(static_cast<size_t>(outline.layers), {.recurrent = true});
  if (const base::Json* const attention = config.find(kKey); attention != nullptr) {
    if (!attention->is_array()) config.refuse(kKey, *attention, "a list of layers there");
    for (const base::Json& layer : *attention) {
      const bool fits = base::holds_number<int64_t>(layer) && layer >= 0 && layer < outline.layers;
      if (!fits) config.refuse(kKey, layer, "layers of the model there");
      outline.block_types[layer.get<size_t>()].recurrent = false;
    }
  }
  read_mamba2(config, kBambaMamba, outline);
}

}  // namespace sluice::model
