#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

// A tensor holds a weight of all experts; files may have it in MXFP4 (checkpoint/mxfp4.h), exports never do.
constexpr TensorNames kGptOssTensors[] = {
    {roles::kRouter, {"mlp.router.weight"}},
    {roles::kRouterBias, {"mlp.router.bias"}},
    {roles::kExpertsGateUp, {"mlp.experts.gate_up_proj"}, Stack::kInOut},
    {roles::kExpertsGateUpBias, {"mlp.experts.gate_up_proj_bias"}, Stack::kInOut},
    {roles::kExpertsDown, {"mlp.experts.down_proj"}, Stack::kInOut},
    {roles::kExpertsDownBias, {"mlp.experts.down_proj_bias"}, Stack::kInOut}};

}  // namespace

extern const Names kGptOssNames{kGptOssTensors};

void read_gpt_oss(Reader& config, Outline& outline) {
  read_decoder(config,
               {.kv_heads = 8, .head_dim = 64, .norm_eps = 1e-5, .rope_theta = 150000.0, .biases = true},
               outline);
  config.only("attention_bias", true);
  config.pass({"initial_context_length"});
  outline.qkv_bias = outline.out_bias = outline.sinks = true;
  read_experts(config, width(config, "intermediate_size"), outline);
  config.only("experts_per_token", outline.experts.per_token);
  outline.experts.normalised = true;  // a softmax of the chosen scores alone
  outline.experts.biases = true;
  outline.activation = Activation::kClampedSilu;
  outline.gate_slope = config.number_or(1.702, "swiglu_alpha", kModelRanges.factor);
  outline.gate_limit = config.number_or(7.0, "swiglu_limit", kModelRanges.factor);
  read_window(config, 128, outline);
  read_layer_types(config, outline, [](int64_t layer) { return layer % 2 == 0; });
}

}  // namespace sluice::model
