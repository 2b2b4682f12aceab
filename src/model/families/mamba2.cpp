#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/families/recurrent_keys.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

// A block's norm has the same name for every kind of part.
constexpr TensorNames kMamba2Tensors[] = {
    {roles::kEmbedding, {"backbone.embeddings.weight"}},
    {roles::kFinalNorm, {"backbone.norm_f.weight"}},
    {roles::kRecurrentNorm, {"norm.weight"}},
    {roles::kRecurrentQkv, {"mixer.in_proj.weight"}},
    {roles::kConvolution, {"mixer.conv1d.weight"}},
    {roles::kConvolutionBias, {"mixer.conv1d.bias"}},
    {roles::kDecay, {"mixer.A_log"}},
    {roles::kStepBias, {"mixer.dt_bias"}},
    {roles::kSkip, {"mixer.D"}},
    {roles::kHeadNorm, {"mixer.norm.weight"}},
    {roles::kRecurrentOut, {"mixer.out_proj.weight"}},
    {roles::kAttentionNorm, {"norm.weight"}},
    {roles::kQkv, {"mixer.q_proj.weight", "mixer.k_proj.weight", "mixer.v_proj.weight"}},
    {roles::kAttentionOut, {"mixer.o_proj.weight"}},
    {roles::kMlpNorm, {"norm.weight"}},
    {roles::kGateUp, {"mixer.up_proj.weight"}},
    {roles::kGateUpBias, {"mixer.up_proj.bias"}},
    {roles::kDown, {"mixer.down_proj.weight"}},
    {roles::kDownBias, {"mixer.down_proj.bias"}},
    {roles::kRouter, {"mixer.gate.weight"}},
    {roles::kCorrection, {"mixer.gate.e_score_correction_bias"}},
    {roles::kExpertsGateUp, {"mixer.experts.{}.up_proj.weight"}},
    {roles::kExpertsDown, {"mixer.experts.{}.down_proj.weight"}},
    {roles::kSharedGateUp, {"mixer.shared_experts.up_proj.weight"}},
    {roles::kSharedDown, {"mixer.shared_experts.down_proj.weight"}}};

constexpr Mamba2Keys kMambaKeys{
    "n_groups", "num_heads", "state_size",         "head_dim", "conv_kernel", "use_conv_bias",
    "use_bias", "expand",    "layer_norm_epsilon", 8,          128,           128,
    1e-5};

}  // namespace

extern const Names kMamba2Names{kMamba2Tensors};

// A block is a mixer alone, without an MLP.
void read_mamba2(Reader& config, Outline& outline) {
  read_decoder(config,
               {.kv_heads = 8,
                .head_dim = 64,
                .norm_eps = 1e-5,
                .heads_key = "num_heads",
                .kv_heads_key = "n_groups",
                .norm_eps_key = "layer_norm_epsilon",
                .ffn_key = ""},
               outline);
  config.only("rms_norm", true);
  config.only("norm_before_gate", false);
  config.pass({"time_step_rank", "time_step_min", "time_step_max", "time_step_floor", "residual_in_fp32",
               "rescale_prenorm_residual", "chunk_size"});
  outline.block_types.assign(static_cast<size_t>(outline.layers), {.rotates = false, .recurrent = true});
  read_mamba2(config, kMambaKeys, outline);
}

}  // namespace sluice::model
