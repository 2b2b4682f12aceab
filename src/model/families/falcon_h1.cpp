#include <string_view>
#include <utility>

#include "base/text.h"
#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/families/recurrent_keys.h"
#include "model/layer_of.h"
#include "model/make_parts.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kFalconTensors[] = {
    {roles::kMlpNorm, {"pre_ff_layernorm.weight"}},
    {roles::kGateUp, {"feed_forward.gate_proj.weight", "feed_forward.up_proj.weight"}},
    {roles::kDown, {"feed_forward.down_proj.weight"}},
    {roles::kFinalNorm, {"model.final_layernorm.weight"}}};

constexpr Mamba2Keys kFalconMamba{"mamba_n_groups",
                                  "mamba_n_heads",
                                  "mamba_d_state",
                                  "mamba_d_head",
                                  "mamba_d_conv",
                                  "mamba_conv_bias",
                                  "mamba_proj_bias",
                                  nullptr,
                                  "rms_norm_eps",
                                  1,
                                  128,
                                  256,
                                  1e-5,
                                  64};

double factor_of(Reader& config, const char* key) { return config.number_or(1.0, key, kModelRanges.factor); }

// A list of `count` factors; all 1 if the file has none.
std::vector<double> factors_of(Reader& config, const char* key, size_t count) {
  std::vector<double> all(count, 1.0);
  const base::Json* const list = config.find(key);
  if (list == nullptr) return all;
  if (!list->is_array() || list->size() != count)
    config.refuse(key, *list, base::text("a list of ", count, " factors"));
  for (size_t i = 0; i < count; ++i) {
    if (!list->at(i).is_number()) config.refuse(key, list->at(i), "numbers there");
    all[i] = list->at(i).get<double>();
    base::require_in_range(base::text(config.name(), ": ", key), all[i], kModelRanges.factor);
  }
  return all;
}

// A head's width follows from the width of all heads; without that key all are twice as wide as the rows.
void read_mamba_heads(Reader& config, Outline& outline) {
  read_mamba2(config, kFalconMamba, outline);
  Recurrent& own = outline.recurrent;
  const int64_t twice = config.count_or(2, "mamba_expand", {1, 64}) * outline.hidden;
  const int64_t all = config.find("mamba_d_ssm") != nullptr ? config.count("mamba_d_ssm", kModelRanges.hidden)
                      : config.says("mamba_d_ssm")          ? twice
                                                            : 1024;
  if (all % own.value_heads != 0)
    config.refuse("mamba_n_heads", own.value_heads, base::text("heads that divide mamba_d_ssm, ", all));
  const base::Json* const width = config.find("mamba_d_head");
  own.value_width = all / own.value_heads;
  if (width != nullptr && *width != "auto") config.only("mamba_d_head", own.value_width);
}

}  // namespace

extern const Names kFalconNames{kFalconTensors};

// Mamba-2 and attention side by side behind one norm, then an MLP, all with factors.
void read_falcon_h1(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 8, .norm_eps = 1e-5}, outline);
  config.off("projectors_bias");
  config.off("mamba_rms_norm");  // true would add a norm before gates
  config.pass({"mamba_norm_before_gate", "mamba_chunk_size", "mamba_use_mlp", "num_logits_to_keep"});
  read_mamba_heads(config, outline);
  outline.embedding_scale = factor_of(config, "embedding_multiplier");
  outline.logit_divisor = 1 / factor_of(config, "lm_head_multiplier");
  const double attention_in = factor_of(config, "attention_in_multiplier"),
               attention_out = factor_of(config, "attention_out_multiplier"),
               key = factor_of(config, "key_multiplier"), mamba_in = factor_of(config, "ssm_in_multiplier"),
               mamba_out = factor_of(config, "ssm_out_multiplier");
  const std::vector<double> mlp = factors_of(config, "mlp_multipliers", 2);
  std::vector<double> mamba = factors_of(config, "ssm_multipliers", 5);
  for (double& each : mamba) each *= mamba_in;
  const ConvolutionBias bias =
      outline.recurrent.convolution_bias ? ConvolutionBias::kOwn : ConvolutionBias::kNone;
  outline.block_types.assign(static_cast<size_t>(outline.layers), {.recurrent = true});
  const Part attention = usual_layer(outline, {}).parts.front();
  change_layers(outline, [&](const BlockType&, Layer& layer) {
    Mamba2 own = std::get<Mamba2>(layer.parts[0].mixer);
    own.normed = false;
    replace_part(outline, layer.parts[0], mamba2_part(own, outline.hidden, bias));
    layer.parts[0].scale = mamba_out;
    layer.parts[0].factors = {{roles::kRecurrentQkv, mamba}};
    layer.parts[1].scale = mlp[1];
    layer.parts[1].factors = {{roles::kGateUp, {mlp[0], 1.0}}};
    Part beside = attention;
    beside.scale = attention_out;
    beside.factors = {{roles::kQkv, {attention_in, attention_in * key, attention_in}}};
    put_beside(layer, beside);
    layer.parts.insert(layer.parts.begin() + 1, std::move(beside));
  });
}

}  // namespace sluice::model
