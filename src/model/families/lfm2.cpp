#include <algorithm>

#include "base/text.h"
#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/layer_of.h"
#include "model/make_parts.h"
#include "model/roles.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

constexpr TensorNames kLfm2Tensors[] = {
    {roles::kFinalNorm, {"model.embedding_norm.weight"}},
    {roles::kAttentionNorm, {"operator_norm.weight"}},
    {roles::kRecurrentNorm, {"operator_norm.weight"}},
    {roles::kQNorm, {"self_attn.q_layernorm.weight"}},
    {roles::kKNorm, {"self_attn.k_layernorm.weight"}},
    {roles::kAttentionOut, {"self_attn.out_proj.weight"}},
    {roles::kMlpNorm, {"ffn_norm.weight"}},
    {roles::kGateUp, {"feed_forward.w1.weight", "feed_forward.w3.weight"}},
    {roles::kDown, {"feed_forward.w2.weight"}},
    {roles::kRouter, {"feed_forward.gate.weight"}},
    {roles::kCorrection, {"feed_forward.expert_bias"}},
    {roles::kExpertsGateUp, {"feed_forward.experts.{}.w1.weight", "feed_forward.experts.{}.w3.weight"}},
    {roles::kExpertsDown, {"feed_forward.experts.{}.w2.weight"}}};

void convolve(Shape& shape, bool biases) {
  const StateHeads channels{.key_heads = shape.hidden,
                            .value_heads = shape.hidden,
                            .value_width = 1,
                            .convolution = shape.recurrent.convolution};
  change_layers(shape, [&](const BlockType& type, Layer& layer) {
    if (!type.recurrent) return;
    replace_part(shape, layer.parts.front(),
                 short_convolution_part({channels}, shape.hidden,
                                        biases ? ConvolutionBias::kOwn : ConvolutionBias::kNone));
  });
}

// Which layers convolve: those that layer_types says; without it all that full_attn_idxs does not list. To
// the rest of the program each channel is a head of a recurrence.
void read_convolutions(Reader& config, Shape& shape) {
  constexpr const char* kAttention = "full_attn_idxs";
  shape.recurrent = {.recurrence = Recurrence::kGla,
                     .key_heads = shape.hidden,
                     .value_heads = shape.hidden,
                     .value_width = 1,
                     .convolution = config.count_or(3, "conv_L_cache", {2, kShapeRanges.convolution.most}),
                     .decay_rank = 1};
  const bool biases = config.has("conv_bias");
  spread_types(shape);
  const base::Json* const attention = config.find(kAttention);
  if (attention != nullptr && !attention->is_array())
    config.refuse(kAttention, *attention, "a list of layers there");
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    shape.block_types[static_cast<size_t>(layer)].recurrent =
        attention != nullptr && std::ranges::find(*attention, base::Json(layer)) == attention->end();
  }
  read_named_layers(config, "layer_types", "conv", "full_attention", shape,
                    [&](int64_t layer, bool convolves) {
                      shape.block_types[static_cast<size_t>(layer)].recurrent = convolves;
                    });
  if (std::ranges::none_of(shape.block_types, &BlockType::recurrent)) {
    shape.recurrent = {};
    drop_usual_types(shape);
  } else {
    convolve(shape, biases);
  }
}

void read_lfm(Reader& config, Shape& shape) {
  read_decoder(config,
               {.kv_heads = 8, .norm_eps = 1e-5, .rope_theta = 1e6, .tied = true, .norm_eps_key = "norm_eps"},
               shape);
  if (config.says("tie_embedding")) shape.tie_embeddings = config.has("tie_embedding");
  config.pass({"use_pos_enc", "theta", "block_norm_eps", "block_use_swiglu", "block_use_xavier_init",
               "conv_use_xavier_init", "block_mlp_init_scale", "block_out_init_scale", "conv_dim",
               "conv_dim_out", "block_dim", "num_heads"});
  shape.qk_norm = QkNorm::kEachHead;
}

// Files give the inner width of an MLP before it is adjusted: two thirds of it, times a factor, rounded up.
void adjust_mlp(Reader& config, Shape& shape) {
  if (config.says("block_ff_dim")) shape.ffn_hidden = width(config, "block_ff_dim");
  const bool adjusts = !config.lacks("block_auto_adjust_ff_dim");
  const double factor = config.number_or(1.0, "block_ffn_dim_multiplier", kShapeRanges.factor);
  const int64_t multiple = config.count_or(256, "block_multiple_of", kShapeRanges.ffn_hidden);
  if (!adjusts) return;
  const auto thirds = static_cast<int64_t>(static_cast<double>(2 * shape.ffn_hidden) / 3);
  const auto scaled = static_cast<int64_t>(factor * static_cast<double>(thirds));
  shape.ffn_hidden = multiple * ((scaled + multiple - 1) / multiple);
}

}  // namespace

extern const Names kLfm2Names{kLfm2Tensors};

void read_lfm2(Reader& config, Shape& shape) {
  read_lfm(config, shape);
  adjust_mlp(config, shape);
  read_convolutions(config, shape);
}

void read_lfm2_moe(Reader& config, Shape& shape) {
  read_lfm(config, shape);
  read_scored_experts(config,
                      {.dense = config.count_or(2, "num_dense_layers", {0, kShapeRanges.layers.most}),
                       .shared = 0,
                       .count_key = "num_experts"},
                      shape);
  shape.experts.corrected = !config.lacks("use_expert_bias");
  read_convolutions(config, shape);
  change_layers(shape, [](const BlockType& type, Layer& layer) {
    if (type.experts) std::get<RoutedExperts>(layer.parts[1].mixer).floor = 1e-6;
  });
}

}  // namespace sluice::model
