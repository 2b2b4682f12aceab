#include "model/families/decoder_keys.h"
#include "model/families/deepseek_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/layer_of.h"
#include "model/model_ranges.h"

namespace sluice::model {
namespace {

constexpr const char* kBeta = "llama_4_scaling_beta";

// Rotary parameters without those from which no positions are computed.
base::Json without_growth(const Reader& config, Outline&) {
  return with_own_rope(config, [&](base::Json& rope) {
    for (const char* key : {kBeta, "max_position_embeddings", "partial_rotary_factor"}) rope.erase(key);
  });
}

// The growth of queries is among the rotary parameters.
QueryGrowth growth_of(const Reader& config) {
  QueryGrowth growth;
  with_own_rope(config, [&](base::Json& rope) {
    if (!rope.contains(kBeta) || rope.at(kBeta).is_null()) return;
    growth = {.beta = base::require_in(rope, kBeta, base::Range<double>{0.0, kModelRanges.factor.most},
                                       config.name()),
              .positions = base::require_in(rope, "original_max_position_embeddings",
                                            kModelRanges.max_positions, config.name())};
  });
  return growth;
}

}  // namespace

void read_mistral(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 8}, outline);
  read_window(config, 4096, outline);
}

void read_ministral(Reader& config, Outline& outline) {
  read_mistral(config, outline);
  read_layer_types(config, outline, [&](int64_t) { return outline.window > 0; });
}

void read_ministral3(Reader& config, Outline& outline) {
  read_decoder(
      config,
      {.kv_heads = 8, .head_dim = 128, .norm_eps = 1e-5, .rope_theta = 1e6, .own_rope = without_growth},
      outline);
  read_window(config, 0, outline);
  const QueryGrowth growth = growth_of(config);
  change_attention(outline, [&](Attention& own) { own.growth = growth; });
}

// The rotated part of a head has two keys.
void read_mistral4(Reader& config, Outline& outline) {
  read_latent(config, {.kv_heads = 32, .own_rope = without_growth}, outline);
  read_scored_experts(config, {}, outline);
  outline.experts.sigmoid = outline.experts.corrected = false;
  const QueryGrowth growth = growth_of(config);
  change_layers(outline, [&](const BlockType&, Layer& layer) {
    std::get<LatentAttention>(layer.parts.front().mixer).growth = growth;
  });
}

}  // namespace sluice::model
