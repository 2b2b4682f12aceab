#include <cmath>

#include "base/text.h"
#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kGlaTensors[] = {{roles::kEmbedding, {"model.embeddings.weight"}},
                                       {roles::kMlpNorm, {"mlp_norm.weight"}}};

// The width of a head: the key's factor times hidden_size, divided by the number of heads.
int64_t head_width(Reader& config, const char* key, double absent, int64_t hidden, int64_t heads) {
  const double factor = config.number_or(absent, key, {1e-3, 64.0});
  const double exact = factor * static_cast<double>(hidden);
  const auto all = std::llround(exact);
  if (all < heads || all % heads != 0 || std::abs(static_cast<double>(all) - exact) > 1e-6) {
    config.refuse(key, factor,
                  base::text("so much of hidden_size ", hidden, " that num_heads ", heads, " divide it"));
  }
  return all / heads;
}

// hidden_size · hidden_ratio · 2/3, rounded up to a multiple of 256; 0 if the file has intermediate_size.
int64_t ffn_of(Reader& config, int64_t hidden) {
  const int64_t ratio = config.count_or(4, "hidden_ratio", {1, 1024});
  return config.find("intermediate_size") != nullptr ? 0 : (hidden * ratio * 2 / 3 + 255) / 256 * 256;
}

void refuse_other_gla(Reader& config) {
  for (const char* key : {"feature_map", "clamp_min", "attn", "attnres_block_size"})
    config.only(key, nullptr);
  for (const char* key : {"use_output_gate", "elementwise_affine", "use_gk"}) config.only(key, true);
  for (const char* key : {"use_short_conv", "use_gv"}) config.only(key, false);
  config.pass({"attn_mode", "conv_size", "fuse_norm", "fuse_swiglu", "fuse_cross_entropy",
               "fuse_linear_cross_entropy", "use_l2warp"});
}

}  // namespace

extern const Names kGlaNames{kGlaTensors};

// As in the library fla: log decays are logsigmoid(·) / 16, from a projection of rank 16.
void read_gla(Reader& config, Outline& outline) {
  refuse_other_gla(config);
  const int64_t hidden = config.count("hidden_size", kModelRanges.hidden);
  const int64_t heads = config.count("num_heads", kModelRanges.heads);
  config.only("num_kv_heads", heads);
  outline.ffn_hidden = ffn_of(config, hidden);
  read_decoder(config,
               {.activation = "swish",
                .heads_key = "num_heads",
                .kv_heads_key = "num_kv_heads",
                .norm_eps_key = "norm_eps"},
               outline);
  outline.block_types.assign(static_cast<size_t>(outline.layers), {.rotates = false, .recurrent = true});
  outline.recurrent = {.recurrence = Recurrence::kGla,
                       .key_heads = heads,
                       .value_heads = heads,
                       .key_width = head_width(config, "expand_k", 0.5, hidden, heads),
                       .value_width = head_width(config, "expand_v", 1.0, hidden, heads),
                       .convolution = 1,
                       .decay_rank = 16,
                       .norm_eps = outline.norm_eps};
}

}  // namespace sluice::model
