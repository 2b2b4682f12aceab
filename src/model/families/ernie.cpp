#include "base/text.h"
#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/layer_of.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kErnieTensors[] = {
    {roles::kCorrection, {"mlp.moe_statics.e_score_correction_bias"}, Stack::kOneRow},
    {roles::kSharedGateUp, {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"}},
    {roles::kSharedDown, {"mlp.shared_experts.down_proj.weight"}}};

void turn_neighbours(Outline& outline) {
  change_attention(outline, [](Attention& own) { own.turning = Turning::kNeighbours; });
}

// Layers from the file's first to its last, both included, in steps of the file's interval.
void read_ernie_layers(Reader& config, Outline& outline) {
  constexpr const char *kFirst = "moe_layer_start_index", *kLast = "moe_layer_end_index",
                       *kEvery = "moe_layer_interval";
  const base::Range<int64_t> layers{-1, kModelRanges.layers.most};
  const int64_t first = config.count_or(1, kFirst, layers),
                every = config.count_or(1, kEvery, kModelRanges.layers);
  int64_t last = config.count_or(-1, kLast, layers);
  if (last == -1) last = outline.layers - 1;
  spread_types(outline);
  for (int64_t layer = 0; layer < outline.layers; ++layer) {
    outline.block_types[static_cast<size_t>(layer)].experts =
        (layer + 1) % every == 0 && layer >= first && layer <= last;
  }
  drop_usual_types(outline);
}

}  // namespace

extern const Names kErnieNames{kErnieTensors};

void read_ernie4_5(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 2, .head_dim = 128, .norm_eps = 1e-5, .rope_theta = 5e5, .tied = true},
               outline);
  outline.qkv_bias = outline.out_bias = outline.mlp_bias = config.has("use_bias");
  turn_neighbours(outline);
}

// A token's weights are divided by their sum, which never falls below moe_norm_min, because a softmax's
// highest scores are far above it.
void read_ernie4_5_moe(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 4, .norm_eps = 1e-5, .rope_theta = 5e5, .tied = true}, outline);
  config.off("use_bias");
  config.pass({"moe_norm_min", "n_group", "topk_group"});
  read_scored_experts(config,
                      {.shared = 2,
                       .count_key = "moe_num_experts",
                       .shared_key = "moe_num_shared_experts",
                       .chosen_key = "moe_k"},
                      outline);
  outline.experts.sigmoid = false;
  read_ernie_layers(config, outline);
  turn_neighbours(outline);
}

}  // namespace sluice::model
