#include "base/text.h"
#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/layer_of.h"
#include "model/roles.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

constexpr TensorNames kErnieTensors[] = {
    {roles::kCorrection, {"mlp.moe_statics.e_score_correction_bias"}, Stack::kOneRow},
    {roles::kSharedGateUp, {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"}},
    {roles::kSharedDown, {"mlp.shared_experts.down_proj.weight"}}};

void turn_neighbours(Shape& shape) {
  change_attention(shape, [](Attention& own) { own.turning = Turning::kNeighbours; });
}

// Layers from the file's first to its last, both included, in steps of the file's interval.
void read_ernie_layers(Reader& config, Shape& shape) {
  constexpr const char *kFirst = "moe_layer_start_index", *kLast = "moe_layer_end_index",
                       *kEvery = "moe_layer_interval";
  const base::Range<int64_t> layers{-1, kShapeRanges.layers.most};
  const int64_t first = config.count_or(1, kFirst, layers),
                every = config.count_or(1, kEvery, kShapeRanges.layers);
  int64_t last = config.count_or(-1, kLast, layers);
  if (last == -1) last = shape.layers - 1;
  spread_types(shape);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    shape.block_types[static_cast<size_t>(layer)].experts =
        (layer + 1) % every == 0 && layer >= first && layer <= last;
  }
  drop_usual_types(shape);
}

}  // namespace

extern const Names kErnieNames{kErnieTensors};

void read_ernie4_5(Reader& config, Shape& shape) {
  read_decoder(config, {.kv_heads = 2, .head_dim = 128, .norm_eps = 1e-5, .rope_theta = 5e5, .tied = true},
               shape);
  shape.qkv_bias = shape.out_bias = shape.mlp_bias = config.has("use_bias");
  turn_neighbours(shape);
}

// A token's weights are divided by their sum, which never falls below moe_norm_min, because a softmax's
// highest scores are far above it.
void read_ernie4_5_moe(Reader& config, Shape& shape) {
  read_decoder(config, {.kv_heads = 4, .norm_eps = 1e-5, .rope_theta = 5e5, .tied = true}, shape);
  config.off("use_bias");
  config.pass({"moe_norm_min", "n_group", "topk_group"});
  read_scored_experts(config,
                      {.shared = 2,
                       .count_key = "moe_num_experts",
                       .shared_key = "moe_num_shared_experts",
                       .chosen_key = "moe_k"},
                      shape);
  shape.experts.sigmoid = false;
  read_ernie_layers(config, shape);
  turn_neighbours(shape);
}

}  // namespace sluice::model
