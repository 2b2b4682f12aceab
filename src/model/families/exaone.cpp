#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kExaoneMoeTensors[] = {
    {roles::kCorrection, {"mlp.e_score_correction_bias"}},
    {roles::kSharedGateUp, {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"}},
    {roles::kSharedDown, {"mlp.shared_experts.down_proj.weight"}}};

// Reads windows. Layers without a window have no rotary positions, unless the file has no windows.
void read_hybrid_windows(Reader& config, Outline& outline) {
  read_window(config, 4096, outline);
  const bool hybrid = outline.window > 0;
  // A pattern of letters only occurs together with layer_types, which decide.
  const bool listed = config.find("layer_types") != nullptr;
  const int64_t pattern = listed ? 0 : config.count_or(4, "sliding_window_pattern", kModelRanges.layers);
  config.pass({"sliding_window_pattern"});
  read_layer_types(config, outline,
                   [&](int64_t layer) { return hybrid && !listed && (layer + 1) % pattern != 0; });
  if (hybrid) turn_windows_alone(outline);
}

}  // namespace

extern const Names kExaoneMoeNames{kExaoneMoeTensors};

void read_exaone4(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 32, .norm_eps = 1e-5}, outline);
  outline.norm_place = NormPlace::kBehind;
  outline.qk_norm = QkNorm::kEachHead;
  read_hybrid_windows(config, outline);
}

void read_exaone_moe(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 32, .norm_eps = 1e-5}, outline);
  config.only("scoring_func", "sigmoid");
  config.only("topk_method", "noaux_tc");
  outline.qk_norm = QkNorm::kEachHead;
  read_scored_experts(
      config, {.dense = 1, .factor = 2.5, .count_key = "num_experts", .shared_key = "num_shared_experts"},
      outline);
  read_mlp_types(config, outline);
  read_hybrid_windows(config, outline);
}

}  // namespace sluice::model
