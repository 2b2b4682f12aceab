#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/families/recurrent_keys.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kQwen3NextTensors[] = {{roles::kHeadNorm, {"linear_attn.norm.weight"}},
                                             {roles::kRecurrentOut, {"linear_attn.out_proj.weight"}}};
constexpr TensorNames kQwen3_5Tensors[] = {
    {roles::kRecurrentQkv, {"linear_attn.in_proj_qkv.weight"}},
    {roles::kRates, {"linear_attn.in_proj_b.weight", "linear_attn.in_proj_a.weight"}},
    {roles::kRecurrentGate, {"linear_attn.in_proj_z.weight"}},
    {roles::kHeadNorm, {"linear_attn.norm.weight"}},
    {roles::kRecurrentOut, {"linear_attn.out_proj.weight"}}};

// The common part of Qwen's hybrids.
void read_hybrid(Reader& config, int64_t absent_kv_heads, Outline& outline) {
  read_decoder(config, {.kv_heads = absent_kv_heads, .head_dim = 256, .rotated = 0.25}, outline);
  outline.qk_norm = QkNorm::kEachHead;
  outline.norm_offset = 1.0;
  outline.gated = true;
  config.only("attn_output_gate", true);
  read_recurrent_types(config, config.count_or(4, "full_attention_interval", kModelRanges.layers), outline);
  read_gated_delta(config,
                   {.key_heads = 16,
                    .value_heads = 32,
                    .key_width = 128,
                    .value_width = 128,
                    .norm_eps = outline.norm_eps},
                   outline);
}

void read_hybrid_experts(Reader& config, Outline& outline) {
  read_hybrid(config, 2, outline);
  read_experts(config, width(config, "moe_intermediate_size"), outline);
  read_expert_layers(config, outline);
  outline.experts.normalised = !config.lacks("norm_topk_prob");
  outline.experts.shared_hidden = width(config, "shared_expert_intermediate_size");
  outline.experts.shared_gate = true;
}

}  // namespace

extern const Names kQwen3NextNames{kQwen3NextTensors};
extern const Names kQwen3_5Names{kQwen3_5Tensors};

void read_qwen3_5(Reader& config, Outline& outline) {
  for (const char* key : {"num_experts", "moe_intermediate_size"}) config.only(key, nullptr);
  config.pass({"num_experts_per_tok", "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers",
               "shared_expert_intermediate_size"});
  read_hybrid(config, 4, outline);
}

void read_qwen3_5_moe(Reader& config, Outline& outline) {
  config.only("norm_topk_prob", true);
  read_hybrid_experts(config, outline);
}

void read_qwen3_next(Reader& config, Outline& outline) {
  read_hybrid_experts(config, outline);
  outline.recurrent.by_key_head = true;
}

}  // namespace sluice::model
