// How files of families call their keys and tensors where LLaMA's are called otherwise. For the registry of
// families alone.
#pragma once

#include <span>
#include <string_view>

#include "model/roles.h"

namespace sluice::model {

// A key that all families have, as one's files call it; "": they lack it.
struct KeyName {
  std::string_view common;
  std::string_view own;
};

// Names of a parameter's tensors in files of a family that calls them otherwise than LLaMA's.
struct TensorNames {
  std::string_view role;
  std::span<const std::string_view> tensors;
  bool stacked = false;  // Parameter::stacked
};

// Where attention's rows lie in one tensor, and gate and up in another.
inline constexpr std::string_view kFusedQkv[] = {"self_attn.qkv_proj.weight"};
inline constexpr std::string_view kFusedGateUp[] = {"mlp.gate_up_proj.weight"};
// Of every expert, {} being its number.
inline constexpr std::string_view kMixtralRouter[] = {"block_sparse_moe.gate.weight"};
inline constexpr std::string_view kMixtralGateUp[] = {"block_sparse_moe.experts.{}.w1.weight",
                                                      "block_sparse_moe.experts.{}.w3.weight"};
inline constexpr std::string_view kMixtralDown[] = {"block_sparse_moe.experts.{}.w2.weight"};
inline constexpr TensorNames kMixtralTensors[] = {{roles::kRouter, kMixtralRouter},
                                                  {roles::kExpertsGateUp, kMixtralGateUp},
                                                  {roles::kExpertsDown, kMixtralDown}};
// One tensor of all experts each.
inline constexpr std::string_view kGptOssRouter[] = {"mlp.router.weight"};
inline constexpr std::string_view kGptOssRouterBias[] = {"mlp.router.bias"};
inline constexpr std::string_view kGptOssGateUp[] = {"mlp.experts.gate_up_proj"};
inline constexpr std::string_view kGptOssGateUpBias[] = {"mlp.experts.gate_up_proj_bias"};
inline constexpr std::string_view kGptOssDown[] = {"mlp.experts.down_proj"};
inline constexpr std::string_view kGptOssDownBias[] = {"mlp.experts.down_proj_bias"};
inline constexpr TensorNames kGptOssTensors[] = {
    {roles::kRouter, kGptOssRouter},
    {roles::kRouterBias, kGptOssRouterBias},
    {roles::kExpertsGateUp, kGptOssGateUp, /*stacked=*/true},
    {roles::kExpertsGateUpBias, kGptOssGateUpBias, /*stacked=*/true},
    {roles::kExpertsDown, kGptOssDown, /*stacked=*/true},
    {roles::kExpertsDownBias, kGptOssDownBias, /*stacked=*/true}};
inline constexpr std::string_view kGlmSharedGateUp[] = {"mlp.shared_experts.gate_proj.weight",
                                                        "mlp.shared_experts.up_proj.weight"};
inline constexpr std::string_view kGlmSharedDown[] = {"mlp.shared_experts.down_proj.weight"};
inline constexpr TensorNames kGlmTensors[] = {{roles::kSharedGateUp, kGlmSharedGateUp},
                                              {roles::kSharedDown, kGlmSharedDown}};
inline constexpr std::string_view kGraniteGateUp[] = {"shared_mlp.input_linear.weight"};
inline constexpr std::string_view kGraniteDown[] = {"shared_mlp.output_linear.weight"};
inline constexpr TensorNames kGraniteHybridTensors[] = {{roles::kGateUp, kGraniteGateUp},
                                                        {roles::kDown, kGraniteDown}};
inline constexpr std::string_view kOlmoRecurrentNorm[] = {"attention_layer_norm.weight"};
inline constexpr std::string_view kOlmoMlpNorm[] = {"feedforward_layer_norm.weight"};
inline constexpr std::string_view kOlmoConvolution[] = {
    "linear_attn.q_conv1d.weight", "linear_attn.k_conv1d.weight", "linear_attn.v_conv1d.weight"};
inline constexpr TensorNames kOlmoHybridTensors[] = {{roles::kRecurrentNorm, kOlmoRecurrentNorm},
                                                     {roles::kMlpNorm, kOlmoMlpNorm},
                                                     {roles::kConvolution, kOlmoConvolution}};
inline constexpr std::string_view kQwenRecurrentQkv[] = {"linear_attn.in_proj_qkv.weight"};
inline constexpr std::string_view kQwenRecurrentRates[] = {"linear_attn.in_proj_b.weight",
                                                           "linear_attn.in_proj_a.weight"};
inline constexpr std::string_view kQwenRecurrentGate[] = {"linear_attn.in_proj_z.weight"};
inline constexpr std::string_view kQwenRecurrentNorm[] = {"linear_attn.norm.weight"};
inline constexpr std::string_view kQwenRecurrentOut[] = {"linear_attn.out_proj.weight"};
inline constexpr TensorNames kQwen3NextTensors[] = {{roles::kHeadNorm, kQwenRecurrentNorm},
                                                    {roles::kRecurrentOut, kQwenRecurrentOut}};
inline constexpr TensorNames kQwen3_5Tensors[] = {{roles::kRecurrentQkv, kQwenRecurrentQkv},
                                                  {roles::kRates, kQwenRecurrentRates},
                                                  {roles::kRecurrentGate, kQwenRecurrentGate},
                                                  {roles::kHeadNorm, kQwenRecurrentNorm},
                                                  {roles::kRecurrentOut, kQwenRecurrentOut}};
inline constexpr std::string_view kMambaTable[] = {"backbone.embeddings.weight"};
inline constexpr std::string_view kMambaFinalNorm[] = {"backbone.norm_f.weight"};
inline constexpr std::string_view kMambaNorm[] = {"norm.weight"};
inline constexpr std::string_view kMambaIn[] = {"mixer.in_proj.weight"};
inline constexpr std::string_view kMambaConvolution[] = {"mixer.conv1d.weight"};
inline constexpr std::string_view kMambaConvolutionBias[] = {"mixer.conv1d.bias"};
inline constexpr std::string_view kMambaDecay[] = {"mixer.A_log"};
inline constexpr std::string_view kMambaStepBias[] = {"mixer.dt_bias"};
inline constexpr std::string_view kMambaSkip[] = {"mixer.D"};
inline constexpr std::string_view kMambaHeadNorm[] = {"mixer.norm.weight"};
inline constexpr std::string_view kMambaOut[] = {"mixer.out_proj.weight"};
inline constexpr TensorNames kMamba2Tensors[] = {{roles::kEmbedding, kMambaTable},
                                                 {roles::kFinalNorm, kMambaFinalNorm},
                                                 {roles::kRecurrentNorm, kMambaNorm},
                                                 {roles::kRecurrentQkv, kMambaIn},
                                                 {roles::kConvolution, kMambaConvolution},
                                                 {roles::kConvolutionBias, kMambaConvolutionBias},
                                                 {roles::kDecay, kMambaDecay},
                                                 {roles::kStepBias, kMambaStepBias},
                                                 {roles::kSkip, kMambaSkip},
                                                 {roles::kHeadNorm, kMambaHeadNorm},
                                                 {roles::kRecurrentOut, kMambaOut}};
inline constexpr std::string_view kGlaTable[] = {"model.embeddings.weight"};
inline constexpr std::string_view kGlaMlpNorm[] = {"mlp_norm.weight"};
inline constexpr TensorNames kGlaTensors[] = {{roles::kEmbedding, kGlaTable}, {roles::kMlpNorm, kGlaMlpNorm}};
inline constexpr TensorNames kPhiTensors[] = {{roles::kQkv, kFusedQkv}, {roles::kGateUp, kFusedGateUp}};

}  // namespace sluice::model
