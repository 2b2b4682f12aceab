#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/layer_of.h"
#include "model/model_ranges.h"

namespace sluice::model {

// transformers' class rotates only in layers with a window, and takes hidden_size ÷ heads for a head's
// width.
void read_cohere2(Reader& config, Outline& outline) {
  read_decoder(config, {.norm_eps = 1e-5, .tied = true, .biases = true, .norm_eps_key = "layer_norm_eps"},
               outline);
  outline.head_dim = outline.hidden / outline.heads;
  config.off("use_qk_norm");
  outline.qkv_bias = outline.out_bias = config.has("attention_bias");
  outline.norm = {.kind = NormKind::kLayer};
  outline.logit_divisor = 1 / config.number_or(0.0625, "logit_scale", kModelRanges.factor);
  const int64_t pattern = config.count_or(4, "sliding_window_pattern", kModelRanges.layers);
  read_window(config, 4096, outline);
  if (outline.window == 0) config.refuse("sliding_window", nullptr, "a window's width");
  read_layer_types(config, outline, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  turn_windows_alone(outline);
  change_attention(outline, [](Attention& own) { own.turning = Turning::kNeighbours; });
  change_layers(outline, [](const BlockType&, Layer& layer) { put_beside(layer, layer.parts[1]); });
}

}  // namespace sluice::model
