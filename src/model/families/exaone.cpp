#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/roles.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

constexpr TensorNames kExaoneMoeTensors[] = {
    {roles::kCorrection, {"mlp.e_score_correction_bias"}},
    {roles::kSharedGateUp, {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"}},
    {roles::kSharedDown, {"mlp.shared_experts.down_proj.weight"}}};

// Reads windows. Layers without a window have no rotary positions, unless the file has no windows.
void read_hybrid_windows(Reader& config, Shape& shape) {
  read_window(config, 4096, shape);
  const bool hybrid = shape.window > 0;
  // A pattern of letters only occurs together with layer_types, which decide.
  const bool listed = config.find("layer_types") != nullptr;
  const int64_t pattern = listed ? 0 : config.count_or(4, "sliding_window_pattern", kShapeRanges.layers);
  config.pass({"sliding_window_pattern"});
  read_layer_types(config, shape,
                   [&](int64_t layer) { return hybrid && !listed && (layer + 1) % pattern != 0; });
  if (hybrid) turn_windows_alone(shape);
}

}  // namespace

extern const Names kExaoneMoeNames{kExaoneMoeTensors};

void read_exaone4(Reader& config, Shape& shape) {
  read_decoder(config, {.kv_heads = 32, .norm_eps = 1e-5}, shape);
  shape.norm_place = NormPlace::kBehind;
  shape.qk_norm = QkNorm::kEachHead;
  read_hybrid_windows(config, shape);
}

void read_exaone_moe(Reader& config, Shape& shape) {
  read_decoder(config, {.kv_heads = 32, .norm_eps = 1e-5}, shape);
  config.only("scoring_func", "sigmoid");
  config.only("topk_method", "noaux_tc");
  shape.qk_norm = QkNorm::kEachHead;
  read_scored_experts(
      config, {.dense = 1, .factor = 2.5, .count_key = "num_experts", .shared_key = "num_shared_experts"},
      shape);
  read_mlp_types(config, shape);
  read_hybrid_windows(config, shape);
}

}  // namespace sluice::model
