#include <algorithm>

#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/families/recurrent_keys.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kOlmoHybridTensors[] = {
    {roles::kRecurrentNorm, {"attention_layer_norm.weight"}},
    {roles::kMlpNorm, {"feedforward_layer_norm.weight"}},
    {roles::kConvolution,
     {"linear_attn.q_conv1d.weight", "linear_attn.k_conv1d.weight", "linear_attn.v_conv1d.weight"}}};

// A null rope_theta means no rotary positions.
bool has_rope(const Reader& config) {
  const auto null = [](const base::Json& in) {
    return in.contains("rope_theta") && in.at("rope_theta").is_null();
  };
  const base::Json* const own = base::find(config.json(), "rope_parameters");
  return !null(own != nullptr && own->is_object() ? *own : config.json());
}

void norm_behind(Outline& outline) {
  outline.norm_place = NormPlace::kBehind;
  outline.qk_norm = QkNorm::kAllHeads;
}

}  // namespace

extern const Names kOlmoHybridNames{kOlmoHybridTensors};

void read_olmo2(Reader& config, Outline& outline) {
  read_decoder(config, {.norm_eps = 1e-5}, outline);
  norm_behind(outline);
}

void read_olmo3(Reader& config, Outline& outline) {
  constexpr double kTheta = 5e5;
  read_decoder(config, {.norm_eps = 1e-5, .rope_theta = kTheta, .ropes_by_type = true}, outline);
  norm_behind(outline);
  read_window(config, 4096, outline);
  read_layer_types(config, outline,
                   [&](int64_t layer) { return outline.window > 0 && (layer + 1) % 4 != 0; });
  read_ropes_by_type(config, kTheta, outline);
}

void read_olmoe(Reader& config, Outline& outline) {
  read_decoder(config, {.norm_eps = 1e-5}, outline);
  config.only("clip_qkv", nullptr);
  outline.qk_norm = QkNorm::kAllHeads;
  read_experts(config, width(config, "intermediate_size"), outline);
}

// The file's bounds of initial decays and steps are ignored: Start says how both are drawn.
void read_olmo_hybrid(Reader& config, Outline& outline) {
  read_decoder(config, {}, outline);
  config.pass(
      {"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor"});
  norm_behind(outline);
  outline.block_types.assign(static_cast<size_t>(outline.layers), {.rotates = has_rope(config)});
  read_recurrent_types(config, 4, outline);
  Recurrent absent{.key_heads = outline.heads, .value_heads = outline.heads};
  const int64_t keys = config.count_or(outline.heads, "linear_num_key_heads", kModelRanges.heads);
  absent.key_width = 3 * outline.hidden / (4 * keys);
  absent.value_width =
      2 * config.count_or(absent.key_width, "linear_key_head_dim", kModelRanges.recurrent_width);
  absent.rate_scale = config.lacks("linear_allow_neg_eigval") ? 1.0 : 2.0;
  read_gated_delta(config, absent, outline);
}

}  // namespace sluice::model
