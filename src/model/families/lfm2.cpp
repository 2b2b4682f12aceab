#include <algorithm>

#include "base/text.h"
#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/families/rope_keys.h"
#include "model/layer_of.h"
#include "model/make_parts.h"
#include "model/model_ranges.h"
#include "model/roles.h"

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

constexpr const char* kBehindMixing = "post_operator_norm.weight";
constexpr const char* kBehindFeeding = "post_ffn_norm.weight";
constexpr TensorNames kLfm3Tensors[] = {
    {roles::kFinalNorm, {"model.embedding_norm.weight"}},
    {roles::kAttentionNorm, {"operator_norm.weight"}},
    {roles::kRecurrentNorm, {"operator_norm.weight"}},
    {roles::kAttentionNormBehind, {kBehindMixing}},
    {roles::kAttentionOut, {"self_attn.o_proj.weight"}},
    {roles::kMlpNorm, {"ffn_norm.weight"}},
    {roles::kMlpNormBehind, {kBehindFeeding}},
    {roles::kGateUp, {"feed_forward.w1.weight", "feed_forward.w3.weight"}},
    {roles::kDown, {"feed_forward.w2.weight"}}};

void convolve(Outline& outline, bool biases) {
  const StateHeads channels{.key_heads = outline.hidden,
                            .value_heads = outline.hidden,
                            .value_width = 1,
                            .convolution = outline.recurrent.convolution};
  change_layers(outline, [&](const BlockType& type, Layer& layer) {
    if (!type.recurrent) return;
    replace_part(outline, layer.parts.front(),
                 short_convolution_part({channels}, outline.hidden,
                                        biases ? ConvolutionBias::kOwn : ConvolutionBias::kNone));
  });
}

// For the rest of the program each channel is a head of a recurrence.
void read_rows(Reader& config, int64_t absent, Outline& outline) {
  outline.recurrent = {
      .recurrence = Recurrence::kGla,
      .key_heads = outline.hidden,
      .value_heads = outline.hidden,
      .value_width = 1,
      .convolution = config.count_or(absent, "conv_L_cache", {2, kModelRanges.convolution.most}),
      .decay_rank = 1};
  spread_types(outline);
}

void convolve_some(Outline& outline, bool biases) {
  if (std::ranges::none_of(outline.block_types, &BlockType::recurrent)) {
    outline.recurrent = {};
    drop_usual_types(outline);
  } else {
    convolve(outline, biases);
  }
}

// Layers with convolutions: by layer_types, or else all that full_attn_idxs does not list.
void read_convolutions(Reader& config, Outline& outline) {
  constexpr const char* kAttention = "full_attn_idxs";
  read_rows(config, 3, outline);
  const bool biases = config.has("conv_bias");
  const base::Json* const attention = config.find(kAttention);
  if (attention != nullptr && !attention->is_array())
    config.refuse(kAttention, *attention, "a list of layers there");
  for (int64_t layer = 0; layer < outline.layers; ++layer) {
    outline.block_types[static_cast<size_t>(layer)].recurrent =
        attention != nullptr && std::ranges::find(*attention, base::Json(layer)) == attention->end();
  }
  read_named_layers(config, "layer_types", "conv", "full_attention", outline,
                    [&](int64_t layer, bool convolves) {
                      outline.block_types[static_cast<size_t>(layer)].recurrent = convolves;
                    });
  convolve_some(outline, biases);
}

// LFM3's types of layers: attention through a window, full attention, or convolution.
void read_three_types(Reader& config, Outline& outline) {
  const base::Json* const types = config.find("layer_types");
  if (types != nullptr && (!types->is_array() || static_cast<int64_t>(types->size()) != outline.layers))
    config.refuse("layer_types", *types,
                  base::text("a list with a type for each of the ", outline.layers, " layers"));
  for (size_t layer = 0; layer < outline.block_types.size(); ++layer) {
    const bool full = layer % 4 == 2, windowed = layer % 4 == 0 && layer > 0;
    const base::Json type = types != nullptr ? types->at(layer)
                            : full           ? "full_attention"
                            : windowed       ? "sliding_attention"
                                             : "conv";
    if (type != "full_attention" && type != "sliding_attention" && type != "conv")
      config.refuse(base::text("layer_types[", layer, "]"), type,
                    "full_attention, sliding_attention or conv");
    BlockType& own = outline.block_types[layer];
    own.recurrent = type == "conv";
    own.windowed = type == "sliding_attention";
  }
}

// Layers with convolutions have norms behind their parts like the others.
void norm_behind(const Outline& outline, Layer& layer) {
  const auto made = [&](std::string_view role, const char* tensor) {
    return norm({role, {}}, tensor, outline.hidden, outline.norm, outline.norm_eps, outline.norm_offset);
  };
  layer.parts[0].behind = made(roles::kAttentionNormBehind, kBehindMixing);
  layer.parts[1].behind = made(roles::kMlpNormBehind, kBehindFeeding);
}

base::Json half_turns(const Reader& config, Outline&) { return with_usual_ropes(config, 0.5); }

void read_lfm(Reader& config, Outline& outline) {
  read_decoder(config,
               {.kv_heads = 8, .norm_eps = 1e-5, .rope_theta = 1e6, .tied = true, .norm_eps_key = "norm_eps"},
               outline);
  if (config.says("tie_embedding")) outline.tie_embeddings = config.has("tie_embedding");
  config.pass({"use_pos_enc", "theta", "block_norm_eps", "block_use_swiglu", "block_use_xavier_init",
               "conv_use_xavier_init", "block_mlp_init_scale", "block_out_init_scale", "conv_dim",
               "conv_dim_out", "block_dim", "num_heads"});
  outline.qk_norm = QkNorm::kEachHead;
}

// Files give the inner width of an MLP before adjustment: two thirds of it, times a factor, rounded up.
void adjust_mlp(Reader& config, Outline& outline) {
  if (config.says("block_ff_dim")) outline.ffn_hidden = width(config, "block_ff_dim");
  const bool adjusts = !config.lacks("block_auto_adjust_ff_dim");
  const double factor = config.number_or(1.0, "block_ffn_dim_multiplier", kModelRanges.factor);
  const int64_t multiple = config.count_or(256, "block_multiple_of", kModelRanges.ffn_hidden);
  if (!adjusts) return;
  const auto thirds = static_cast<int64_t>(static_cast<double>(2 * outline.ffn_hidden) / 3);
  const auto scaled = static_cast<int64_t>(factor * static_cast<double>(thirds));
  outline.ffn_hidden = multiple * ((scaled + multiple - 1) / multiple);
}

}  // namespace

extern const Names kLfm2Names{kLfm2Tensors}, kLfm3Names{kLfm3Tensors};

void read_lfm2(Reader& config, Outline& outline) {
  read_lfm(config, outline);
  adjust_mlp(config, outline);
  read_convolutions(config, outline);
}

void read_lfm2_moe(Reader& config, Outline& outline) {
  read_lfm(config, outline);
  read_scored_experts(config,
                      {.dense = config.count_or(2, "num_dense_layers", {0, kModelRanges.layers.most}),
                       .shared = 0,
                       .count_key = "num_experts"},
                      outline);
  outline.experts.corrected = !config.lacks("use_expert_bias");
  read_convolutions(config, outline);
  change_layers(outline, [](const BlockType& type, Layer& layer) {
    if (type.experts) std::get<RoutedExperts>(layer.parts[1].mixer).floor = 1e-6;
  });
}

void read_lfm3(Reader& config, Outline& outline) {
  read_decoder(config,
               {.kv_heads = 4,
                .heads = 16,
                .vocab = 128000,
                .head_dim = 128,
                .norm_eps = 1e-5,
                .tied = true,
                .ropes_by_type = true,
                .norm_eps_key = "norm_eps",
                .own_rope = half_turns},
               outline);
  const bool around = !config.lacks("use_sandwich_norm"), gated = !config.lacks("use_attention_gate");
  const bool biases = config.has("conv_bias");
  outline.qk_norm = QkNorm::kEachHead;
  outline.gated = gated;
  if (around) outline.norm_place = NormPlace::kAround;
  read_window(config, 256, outline);
  read_rows(config, 7, outline);
  read_three_types(config, outline);
  if (std::ranges::none_of(outline.block_types, &BlockType::windowed)) {
    outline.window = 0;
  } else {
    if (outline.window == 0) config.refuse("sliding_window", nullptr, "a window's width");
    outline.window_rope = window_rope_from_hugging_face(config, 10000.0);
  }
  convolve_some(outline, biases);
  change_layers(outline, [&](const BlockType& type, Layer& layer) {
    if (type.recurrent && around) norm_behind(outline, layer);
    auto* const found = std::get_if<Attention>(&layer.parts[0].mixer);
    if (found == nullptr || !gated) return;
    Attention own = *found;
    own.gates_apart = own.gates_of_heads = true;
    replace_part(outline, layer.parts[0], attention_part(own, outline.hidden, {}));
  });
}

}  // namespace sluice::model
