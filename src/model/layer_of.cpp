#include "model/layer_of.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "model/derive.h"
#include "model/families/family.h"
#include "model/lora_targets.h"
#include "model/make_parts.h"
#include "model/parameter.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

Part recurrent_part(const Outline& outline) {
  const Recurrent& own = outline.recurrent;
  const StateHeads heads{.key_heads = own.key_heads,
                         .value_heads = own.value_heads,
                         .key_width = own.key_width,
                         .value_width = own.value_width,
                         .numbers = own.numbers(),
                         .convolution = own.convolution,
                         .norm_eps = own.norm_eps};
  switch (own.recurrence) {
    case Recurrence::kMamba2:
      return mamba2_part({heads}, outline.hidden,
                         own.convolution_bias ? ConvolutionBias::kOwn : ConvolutionBias::kNone);
    case Recurrence::kGla: return gla_part({heads, own.decay_rank}, outline.hidden);
    case Recurrence::kKda: return kda_part({heads, own.decay_rank}, outline.hidden);
    case Recurrence::kGatedDelta: break;
  }
  return delta_rule_part({heads, own.rate_scale}, outline.hidden,
                         own.by_key_head ? RowOrder::kByKeyHead : RowOrder::kByKind);
}

// The part that mixes tokens.
Part mixing_part(const Outline& outline, const BlockType& type) {
  if (type.recurrent) return recurrent_part(outline);
  const std::optional<Rope> rope = type.rotates ? std::optional(outline.rope_of(type)) : std::nullopt;
  const Biases biases{outline.qkv_bias, outline.out_bias};
  const double scale = outline.attention_scale > 0 ? outline.attention_scale
                                                   : 1.0 / std::sqrt(static_cast<double>(outline.head_dim));
  const Latent& latent = outline.latent;
  if (latent.kv_rank > 0) {
    return latent_attention_part({.heads = outline.heads,
                                  .q_rank = latent.q_rank,
                                  .kv_rank = latent.kv_rank,
                                  .unrotated = latent.unrotated,
                                  .rotated = latent.rotated,
                                  .values = latent.values,
                                  .rope = rope,
                                  .scale = scale},
                                 outline.hidden, biases);
  }
  return attention_part({.heads = outline.heads,
                         .kv_heads = outline.kv_heads,
                         .head_dim = outline.head_dim,
                         .window = type.windowed ? outline.window : 0,
                         .rope = rope,
                         .rotated = outline.rotated_width(),
                         .scale = scale,
                         .cap = outline.score_cap,
                         .head_norm = outline.qk_norm,
                         .norm_eps = outline.norm_eps,
                         .norm_offset = outline.norm_offset,
                         .gated = outline.gated,
                         .sinks = outline.sinks,
                         .causal = outline.causal},
                        outline.hidden, biases);
}

Part feeding_part(const Outline& outline, const BlockType& type) {
  const Gate gate{outline.activation, outline.gate_slope, outline.gate_limit, outline.mlp_gate};
  return type.experts
             ? experts_part({outline.experts, gate}, outline.hidden)
             : mlp_part({outline.ffn_hidden, gate}, outline.hidden, {outline.mlp_bias, outline.mlp_bias});
}

struct NormNames {
  NormRoles role, role_behind;
  std::string before, behind;  // tensors
};
NormNames names_of(const Part& part, NormPlace place) {
  if (std::holds_alternative<Mlp>(part.mixer) || std::holds_alternative<RoutedExperts>(part.mixer)) {
    return {
        {roles::kMlpNorm, roles::kMlpNormBias},
        {roles::kMlpNormBehind, roles::kMlpNormBehindBias},
        place == NormPlace::kAround ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight",
        "post_feedforward_layernorm.weight"};
  }
  const std::string before =
      std::holds_alternative<Gla>(part.mixer) ? "attn_norm.weight" : "input_layernorm.weight";
  if (states_of(part.mixer) != nullptr)
    return {{roles::kRecurrentNorm, roles::kRecurrentNormBias}, {}, before, {}};
  return {{roles::kAttentionNorm, roles::kAttentionNormBias},
          {roles::kAttentionNormBehind, roles::kAttentionNormBehindBias},
          before,
          "post_attention_layernorm.weight"};
}

void add_norms(const Outline& outline, const BlockType& type, Part& part) {
  const NormPlace place = type.recurrent ? NormPlace::kBefore : outline.norm_place;
  const bool from_one =
      std::holds_alternative<Gla>(part.mixer) || std::holds_alternative<LatentAttention>(part.mixer);
  const double offset = from_one ? 0 : outline.norm_offset;
  const NormNames names = names_of(part, place);
  const auto made = [&](const NormRoles& role, const std::string& tensor) {
    return norm(role, tensor, outline.hidden, outline.norm, outline.norm_eps, offset);
  };
  if (place == NormPlace::kBefore || place == NormPlace::kAround)
    part.before = made(names.role, names.before);
  if (place != NormPlace::kBefore) part.behind = made(names.role_behind, names.behind);
  part.norms_sum = place == NormPlace::kOfSum;
  part.scale = outline.residual_scale;
}

// For layers that were made before a run asked for loads.
void remember_loads(Layer& layer) {
  for (Part& part : layer.parts) {
    auto* const routed = std::get_if<RoutedExperts>(&part.mixer);
    if (routed != nullptr && !routed->experts.remembers_loads) add_loads(*routed, part);
  }
}

void add_adapters(const Lora& lora, Weight& weight) {
  if (lora.rank == 0 || weight.columns == 1) return;
  if (weight.experts > 0) {
    if (!weight.is_product()) return;
    if (const auto target = target_of_stack(lora, stacked_name(weight)))
      weight.adapters.push_back({.rank = target->rank});
    return;
  }
  if (!takes_adapters(weight.role, weight.adapts)) return;
  for (size_t i = 0; i < weight.tensors.size(); ++i) {
    if (const auto target = target_of_module(lora, weight.tensors[i]))
      weight.adapters.push_back(
          {.tensor = static_cast<int>(i), .rank = target->rank, .has_magnitude = lora.dora});
  }
}

// In parameter order, without adapters.
std::vector<Weight*> weights_of(Layer& layer) {
  std::vector<Weight*> all;
  for (Part& part : layer.parts) {
    for (std::vector<Weight>* const weights : own_weights(part)) {
      for (Weight& weight : *weights) all.push_back(&weight);
    }
  }
  std::ranges::copy(joint_weights(layer), std::back_inserter(all));
  return all;
}

// Bit i belongs to parameter i.
void freeze(uint64_t bits, const std::vector<Weight*>& weights) {
  int bit = 0;
  const auto trained = [&] { return (bits >> bit++ & 1) == 0; };
  for (Weight* const weight : weights) weight->trained = trained() && !weight->fixed;
  for (Weight* const weight : weights) {
    for (AdapterPair& pair : weight->adapters) {
      pair.left_trained = trained();
      pair.right_trained = trained();
      if (pair.has_magnitude) pair.magnitude_trained = trained();
    }
  }
}

Weight vocabulary(const Outline& outline, std::string_view role, const char* tensor) {
  Weight weight = matrix(role, {tensor}, outline.hidden, {{outline.vocab, outline.vocab}}, Use::kIn);
  name_tensors(outline, weight);
  return weight;
}

}  // namespace

void change_each_layer(
    Outline& outline, const std::function<void(int64_t index, const BlockType& type, Layer& layer)>& change) {
  std::vector<std::shared_ptr<const Layer>> made;  // each distinct value once
  if (outline.block_types.empty())
    outline.block_types.assign(static_cast<size_t>(outline.layers), outline.block_type(0));
  for (int64_t index = 0; index < outline.layers; ++index) {
    BlockType& type = outline.block_types[static_cast<size_t>(index)];
    Layer layer = type.own.value ? *type.own.value : usual_layer(outline, type);
    change(index, type, layer);
    auto found = std::ranges::find_if(made, [&](const auto& other) { return *other == layer; });
    if (found == made.end()) found = made.insert(made.end(), std::make_shared<const Layer>(std::move(layer)));
    type.own.value = *found;
  }
}

void change_layers(Outline& outline, const std::function<void(const BlockType& type, Layer& layer)>& change) {
  change_each_layer(outline, [&](int64_t, const BlockType& type, Layer& layer) { change(type, layer); });
}

void replace_part(const Outline& outline, Part& part, Part made) {
  for (Weight& weight : made.weights) name_tensors(outline, weight);
  part.weights = std::move(made.weights);
  part.mixer = std::move(made.mixer);
}

void change_attention(Outline& outline, const std::function<void(Attention& own)>& change) {
  change_layers(outline, [&](const BlockType&, Layer& layer) {
    for (Part& part : layer.parts) {
      if (!std::holds_alternative<Attention>(part.mixer)) continue;
      Attention own = std::get<Attention>(part.mixer);
      change(own);
      replace_part(outline, part, attention_part(own, outline.hidden, {outline.qkv_bias, outline.out_bias}));
    }
  });
}

void put_beside(const Layer& layer, Part& part) {
  part.beside = true;
  part.before = layer.parts.front().before;
}

void put_beside_mlp(const Outline& outline, Layer& layer, Part experts) {
  const auto made = [&](std::string_view role, const std::string& tensor) {
    return norm({role, {}}, tensor, outline.hidden, outline.norm, outline.norm_eps, outline.norm_offset);
  };
  layer.parts.back().behind = made(roles::kMlpNormBehind, "post_feedforward_layernorm_1.weight");
  experts.beside = experts.own_norm = true;
  experts.before = made(roles::kExpertsNorm, "pre_feedforward_layernorm_2.weight");
  experts.behind = made(roles::kExpertsNormBehind, "post_feedforward_layernorm_2.weight");
  for (Weight& weight : experts.weights) name_tensors(outline, weight);
  layer.parts.push_back(std::move(experts));
  layer.joint = made(roles::kJointNorm, "post_feedforward_layernorm.weight");
}

bool OwnLayer::operator==(const OwnLayer& other) const {
  return value == other.value || (value && other.value && *value == *other.value);
}

Layer usual_layer(const Outline& outline, const BlockType& type) {
  Layer layer{.hidden = outline.hidden, .parts = {mixing_part(outline, type)}};
  if (type.experts || outline.ffn_hidden > 0) layer.parts.push_back(feeding_part(outline, type));
  for (Part& part : layer.parts) add_norms(outline, type, part);
  for (Weight* const weight : weights_of(layer)) name_tensors(outline, *weight);
  return layer;
}

Layer layer_of(const Outline& outline, const BlockType& type) {
  Layer layer = type.own.value ? *type.own.value : usual_layer(outline, type);
  if (type.own.value && outline.experts.remembers_loads) remember_loads(layer);
  const std::vector<Weight*> weights = weights_of(layer);
  for (Weight* const weight : weights) add_adapters(outline.lora, *weight);
  freeze(type.frozen, weights);
  for (Weight* const weight : weights) {
    const bool matrix = weight->is_product() && weight->columns > 1;
    if (matrix && (weight->adapts || weight->experts > 0) && !weight->trained) weight->format = outline.base;
  }
  return layer;
}

namespace {

constexpr int64_t kTokenKinds = 2;  // first and second segment; Sluice's tokens are of the first

// The width of each layer's input from embeddings by layer; 0: none.
int64_t layer_input_width(const Outline& outline) {
  const auto own = outline.block_types.empty() ? nullptr : outline.block_types.front().own.value;
  if (own == nullptr) return 0;
  for (const Part& part : own->parts) {
    if (const auto* const input = std::get_if<LayerInput>(&part.mixer)) return input->width;
  }
  return 0;
}

}  // namespace

Embedding embedding_of(const Outline& outline) {
  Embedding embedding{.table = vocabulary(outline, roles::kEmbedding, "model.embed_tokens.weight"),
                      .scale = outline.embedding_scale};
  std::vector<Weight*> own{&embedding.table};
  if (outline.positions > 0) {
    embedding.positions = matrix(roles::kPositions, {"model.position_embeddings.weight"}, outline.hidden,
                                 {{outline.positions, 0}}, Use::kVector);
    embedding.kinds = matrix(roles::kTokenKinds, {"model.token_type_embeddings.weight"}, outline.hidden,
                             {{kTokenKinds, 0}}, Use::kVector);
    for (std::optional<Weight>* const rows : {&embedding.positions, &embedding.kinds}) own.push_back(&**rows);
  }
  if (outline.embedding_norm) {
    embedding.norm = norm({roles::kEmbeddingNorm, roles::kEmbeddingNormBias}, "model.embed_norm.weight",
                          outline.hidden, outline.norm, outline.norm_eps, outline.norm_offset);
    for (Weight& weight : embedding.norm->weights) own.push_back(&weight);
  }
  if (const int64_t width = layer_input_width(outline); width > 0) {
    embedding.by_layer =
        layer_embedding(outline.layers, width, outline.hidden, outline.vocab, outline.norm_eps);
    own.insert(own.end(), {&embedding.by_layer->table, &embedding.by_layer->projection});
    for (Weight& weight : embedding.by_layer->norm.weights) own.push_back(&weight);
  }
  for (Weight* const weight : own) name_tensors(outline, *weight);
  freeze(outline.frozen_embedding, own);
  return embedding;
}

namespace {

Neck neck_of(const Outline& outline, const NeckStyle& style) {
  Neck neck{
      .dense = matrix(roles::kNeck, {"head.dense.weight"}, outline.hidden, {{outline.hidden, 0}}, Use::kIn),
      .bias = {},
      .activation = style.activation,
      .norm = {}};
  if (style.bias)
    neck.bias = vector(roles::kNeckBias, {"head.dense.bias"}, {{outline.hidden, 0}}, Start::kZero);
  if (style.normed)
    neck.norm = norm({roles::kNeckNorm, roles::kNeckNormBias}, "head.norm.weight", outline.hidden,
                     outline.norm, outline.norm_eps, outline.norm_offset);
  return neck;
}

// Adds the matrix of logits, or of a head's numbers.
void add_output(const Outline& outline, Head& head) {
  const HeadStyle& style = outline.head;
  head.output = {.columns = outline.hidden, .use = Use::kIn};
  if (style.kind == HeadKind::kRows) return;
  if (style.kind != HeadKind::kVocabulary) {
    // Whole on every TP rank, which multiplies its own rows by it.
    head.output = matrix(roles::kScore, {"score.weight"}, outline.hidden, {{style.numbers, 0}}, Use::kIn);
    if (style.bias) head.bias = vector(roles::kScoreBias, {"score.bias"}, {{style.numbers, 0}}, Start::kZero);
    if (style.neck) head.neck = neck_of(outline, *style.neck);
    return;
  }
  head.output =
      outline.ties_head() ? embedding_of(outline).table : vocabulary(outline, roles::kHead, "lm_head.weight");
  if (style.bias) {
    head.bias = vector(roles::kScoreBias, {"lm_head.bias"}, {{outline.vocab, outline.vocab}}, Start::kZero);
    head.bias->adapts = false;
  }
  head.divisor = outline.logit_divisor;
  head.cap = outline.logit_cap;
}

}  // namespace

namespace {

// With norms of sums, the last rows are normed already.
Norm final_norm(const Outline& outline) {
  if (outline.norm_place == NormPlace::kOfSum) return {.kind = NormKind::kNone};
  return norm({roles::kFinalNorm, roles::kFinalNormBias}, "model.norm.weight", outline.hidden, outline.norm,
              outline.norm_eps, outline.norm_offset);
}

}  // namespace

Head head_of(const Outline& outline) {
  Head head{.kind = outline.head.kind,
            .pooling = outline.head.pooling,
            .norm = final_norm(outline),
            .neck = {},
            .output = {},
            .bias = {},
            .tied = outline.ties_head()};
  add_output(outline, head);
  for (Weight* const weight : own_weights_of(head)) name_tensors(outline, *weight);
  if (outline.mtp) head.mtp = mtp_layer(outline);
  freeze(outline.frozen_head, own_weights_of(head));
  return head;
}

}  // namespace sluice::model
