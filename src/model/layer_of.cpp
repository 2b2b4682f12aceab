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

Part recurrent_part(const Shape& shape) {
  const Recurrent& own = shape.recurrent;
  const StateHeads heads{.key_heads = own.key_heads,
                         .value_heads = own.value_heads,
                         .key_width = own.key_width,
                         .value_width = own.value_width,
                         .numbers = own.numbers(),
                         .convolution = own.convolution,
                         .norm_eps = own.norm_eps};
  switch (own.recurrence) {
    case Recurrence::kMamba2:
      return mamba2_part({heads}, shape.hidden,
                         own.convolution_bias ? ConvolutionBias::kOwn : ConvolutionBias::kNone);
    case Recurrence::kGla: return gla_part({heads, own.decay_rank}, shape.hidden);
    case Recurrence::kKda: return kda_part({heads, own.decay_rank}, shape.hidden);
    case Recurrence::kGatedDelta: break;
  }
  return delta_rule_part({heads, own.rate_scale}, shape.hidden,
                         own.by_key_head ? RowOrder::kByKeyHead : RowOrder::kByKind);
}

// The part that mixes tokens.
Part mixing_part(const Shape& shape, const BlockType& type) {
  if (type.recurrent) return recurrent_part(shape);
  const std::optional<Rope> rope = type.rotates ? std::optional(shape.rope_of(type)) : std::nullopt;
  const Biases biases{shape.qkv_bias, shape.out_bias};
  const double scale = shape.attention_scale > 0 ? shape.attention_scale
                                                 : 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  const Latent& latent = shape.latent;
  if (latent.kv_rank > 0) {
    return latent_attention_part({.heads = shape.heads,
                                  .q_rank = latent.q_rank,
                                  .kv_rank = latent.kv_rank,
                                  .unrotated = latent.unrotated,
                                  .rotated = latent.rotated,
                                  .values = latent.values,
                                  .rope = rope,
                                  .scale = scale},
                                 shape.hidden, biases);
  }
  return attention_part({.heads = shape.heads,
                         .kv_heads = shape.kv_heads,
                         .head_dim = shape.head_dim,
                         .window = type.windowed ? shape.window : 0,
                         .rope = rope,
                         .rotated = shape.rotated_width(),
                         .scale = scale,
                         .cap = shape.score_cap,
                         .head_norm = shape.qk_norm,
                         .norm_eps = shape.norm_eps,
                         .norm_offset = shape.norm_offset,
                         .gated = shape.gated,
                         .sinks = shape.sinks,
                         .causal = shape.causal},
                        shape.hidden, biases);
}

Part feeding_part(const Shape& shape, const BlockType& type) {
  const Gate gate{shape.activation, shape.gate_slope, shape.gate_limit, shape.mlp_gate};
  return type.experts ? experts_part({shape.experts, gate}, shape.hidden)
                      : mlp_part({shape.ffn_hidden, gate}, shape.hidden, {shape.mlp_bias, shape.mlp_bias});
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

void add_norms(const Shape& shape, const BlockType& type, Part& part) {
  const NormPlace place = type.recurrent ? NormPlace::kBefore : shape.norm_place;
  const bool from_one =
      std::holds_alternative<Gla>(part.mixer) || std::holds_alternative<LatentAttention>(part.mixer);
  const double offset = from_one ? 0 : shape.norm_offset;
  const NormNames names = names_of(part, place);
  const auto made = [&](const NormRoles& role, const std::string& tensor) {
    return norm(role, tensor, shape.hidden, shape.norm, shape.norm_eps, offset);
  };
  if (place == NormPlace::kBefore || place == NormPlace::kAround)
    part.before = made(names.role, names.before);
  if (place != NormPlace::kBefore) part.behind = made(names.role_behind, names.behind);
  part.norms_sum = place == NormPlace::kOfSum;
  part.scale = shape.residual_scale;
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
      weight.adapters.push_back({.tensor = static_cast<int>(i), .rank = target->rank});
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
    }
  }
}

Weight vocabulary(const Shape& shape, std::string_view role, const char* tensor) {
  Weight weight = matrix(role, {tensor}, shape.hidden, {{shape.vocab, shape.vocab}}, Use::kIn);
  name_tensors(shape, weight);
  return weight;
}

}  // namespace

void change_each_layer(
    Shape& shape, const std::function<void(int64_t index, const BlockType& type, Layer& layer)>& change) {
  std::vector<std::shared_ptr<const Layer>> made;  // each distinct value once
  if (shape.block_types.empty())
    shape.block_types.assign(static_cast<size_t>(shape.layers), shape.block_type(0));
  for (int64_t index = 0; index < shape.layers; ++index) {
    BlockType& type = shape.block_types[static_cast<size_t>(index)];
    Layer layer = type.own.value ? *type.own.value : usual_layer(shape, type);
    change(index, type, layer);
    auto found = std::ranges::find_if(made, [&](const auto& other) { return *other == layer; });
    if (found == made.end()) found = made.insert(made.end(), std::make_shared<const Layer>(std::move(layer)));
    type.own.value = *found;
  }
}

void change_layers(Shape& shape, const std::function<void(const BlockType& type, Layer& layer)>& change) {
  change_each_layer(shape, [&](int64_t, const BlockType& type, Layer& layer) { change(type, layer); });
}

bool attends_by_chunks(const Shape& shape) {
  for (const BlockType& type : shape.block_types) {
    if (!type.windowed || !type.own.value) continue;
    for (const Part& part : type.own.value->parts) {
      const auto* const own = std::get_if<Attention>(&part.mixer);
      if (own != nullptr) return own->chunked;
    }
  }
  return false;
}

void replace_part(const Shape& shape, Part& part, Part made) {
  for (Weight& weight : made.weights) name_tensors(shape, weight);
  part.weights = std::move(made.weights);
  part.mixer = std::move(made.mixer);
}

void change_attention(Shape& shape, const std::function<void(Attention& own)>& change) {
  change_layers(shape, [&](const BlockType&, Layer& layer) {
    for (Part& part : layer.parts) {
      if (!std::holds_alternative<Attention>(part.mixer)) continue;
      Attention own = std::get<Attention>(part.mixer);
      change(own);
      replace_part(shape, part, attention_part(own, shape.hidden, {shape.qkv_bias, shape.out_bias}));
    }
  });
}

void put_beside(const Layer& layer, Part& part) {
  part.beside = true;
  part.before = layer.parts.front().before;
}

void put_beside_mlp(const Shape& shape, Layer& layer, Part experts) {
  const auto made = [&](std::string_view role, const std::string& tensor) {
    return norm({role, {}}, tensor, shape.hidden, shape.norm, shape.norm_eps, shape.norm_offset);
  };
  layer.parts.back().behind = made(roles::kMlpNormBehind, "post_feedforward_layernorm_1.weight");
  experts.beside = experts.own_norm = true;
  experts.before = made(roles::kExpertsNorm, "pre_feedforward_layernorm_2.weight");
  experts.behind = made(roles::kExpertsNormBehind, "post_feedforward_layernorm_2.weight");
  for (Weight& weight : experts.weights) name_tensors(shape, weight);
  layer.parts.push_back(std::move(experts));
  layer.joint = made(roles::kJointNorm, "post_feedforward_layernorm.weight");
}

bool OwnLayer::operator==(const OwnLayer& other) const {
  return value == other.value || (value && other.value && *value == *other.value);
}

Layer usual_layer(const Shape& shape, const BlockType& type) {
  Layer layer{.hidden = shape.hidden, .parts = {mixing_part(shape, type)}};
  if (type.experts || shape.ffn_hidden > 0) layer.parts.push_back(feeding_part(shape, type));
  for (Part& part : layer.parts) add_norms(shape, type, part);
  for (Weight* const weight : weights_of(layer)) name_tensors(shape, *weight);
  return layer;
}

Layer layer_of(const Shape& shape, const BlockType& type) {
  Layer layer = type.own.value ? *type.own.value : usual_layer(shape, type);
  if (type.own.value && shape.experts.remembers_loads) remember_loads(layer);
  const std::vector<Weight*> weights = weights_of(layer);
  for (Weight* const weight : weights) add_adapters(shape.lora, *weight);
  freeze(type.frozen, weights);
  for (Weight* const weight : weights) {
    const bool matrix = weight->is_product() && weight->columns > 1;
    if (matrix && (weight->adapts || weight->experts > 0) && !weight->trained) weight->format = shape.base;
  }
  return layer;
}

namespace {

constexpr int64_t kTokenKinds = 2;  // first and second segment; Sluice's tokens are of the first

// The width of each layer's input from embeddings by layer; 0: none.
int64_t layer_input_width(const Shape& shape) {
  const auto own = shape.block_types.empty() ? nullptr : shape.block_types.front().own.value;
  if (own == nullptr) return 0;
  for (const Part& part : own->parts) {
    if (const auto* const input = std::get_if<LayerInput>(&part.mixer)) return input->width;
  }
  return 0;
}

}  // namespace

Embedding embedding_of(const Shape& shape) {
  Embedding embedding{.table = vocabulary(shape, roles::kEmbedding, "model.embed_tokens.weight"),
                      .scale = shape.embedding_scale};
  std::vector<Weight*> own{&embedding.table};
  if (shape.positions > 0) {
    embedding.positions = matrix(roles::kPositions, {"model.position_embeddings.weight"}, shape.hidden,
                                 {{shape.positions, 0}}, Use::kVector);
    embedding.kinds = matrix(roles::kTokenKinds, {"model.token_type_embeddings.weight"}, shape.hidden,
                             {{kTokenKinds, 0}}, Use::kVector);
    for (std::optional<Weight>* const rows : {&embedding.positions, &embedding.kinds}) own.push_back(&**rows);
  }
  if (shape.embedding_norm) {
    embedding.norm = norm({roles::kEmbeddingNorm, roles::kEmbeddingNormBias}, "model.embed_norm.weight",
                          shape.hidden, shape.norm, shape.norm_eps, shape.norm_offset);
    for (Weight& weight : embedding.norm->weights) own.push_back(&weight);
  }
  if (const int64_t width = layer_input_width(shape); width > 0) {
    embedding.by_layer = layer_embedding(shape.layers, width, shape.hidden, shape.vocab, shape.norm_eps);
    own.insert(own.end(), {&embedding.by_layer->table, &embedding.by_layer->projection});
    for (Weight& weight : embedding.by_layer->norm.weights) own.push_back(&weight);
  }
  for (Weight* const weight : own) name_tensors(shape, *weight);
  freeze(shape.frozen_embedding, own);
  return embedding;
}

namespace {

Neck neck_of(const Shape& shape, const NeckStyle& style) {
  Neck neck{.dense = matrix(roles::kNeck, {"head.dense.weight"}, shape.hidden, {{shape.hidden, 0}}, Use::kIn),
            .bias = {},
            .activation = style.activation,
            .norm = {}};
  if (style.bias)
    neck.bias = vector(roles::kNeckBias, {"head.dense.bias"}, {{shape.hidden, 0}}, Start::kZero);
  if (style.normed)
    neck.norm = norm({roles::kNeckNorm, roles::kNeckNormBias}, "head.norm.weight", shape.hidden, shape.norm,
                     shape.norm_eps, shape.norm_offset);
  return neck;
}

// Adds the matrix of logits, or of a head's numbers.
void add_output(const Shape& shape, Head& head) {
  const HeadStyle& style = shape.head;
  head.output = {.columns = shape.hidden, .use = Use::kIn};
  if (style.kind == HeadKind::kRows) return;
  if (style.kind != HeadKind::kVocabulary) {
    // Whole on every TP rank, which multiplies its own rows by it.
    head.output = matrix(roles::kScore, {"score.weight"}, shape.hidden, {{style.numbers, 0}}, Use::kIn);
    if (style.bias) head.bias = vector(roles::kScoreBias, {"score.bias"}, {{style.numbers, 0}}, Start::kZero);
    if (style.neck) head.neck = neck_of(shape, *style.neck);
    return;
  }
  head.output =
      shape.ties_head() ? embedding_of(shape).table : vocabulary(shape, roles::kHead, "lm_head.weight");
  if (style.bias) {
    head.bias = vector(roles::kScoreBias, {"lm_head.bias"}, {{shape.vocab, shape.vocab}}, Start::kZero);
    head.bias->adapts = false;
  }
  head.divisor = shape.logit_divisor;
  head.cap = shape.logit_cap;
}

}  // namespace

namespace {

// With norms of sums, the last rows are normed already.
Norm final_norm(const Shape& shape) {
  if (shape.norm_place == NormPlace::kOfSum) return {.kind = NormKind::kNone};
  return norm({roles::kFinalNorm, roles::kFinalNormBias}, "model.norm.weight", shape.hidden, shape.norm,
              shape.norm_eps, shape.norm_offset);
}

}  // namespace

Head head_of(const Shape& shape) {
  Head head{.kind = shape.head.kind,
            .pooling = shape.head.pooling,
            .norm = final_norm(shape),
            .neck = {},
            .output = {},
            .bias = {},
            .tied = shape.ties_head()};
  add_output(shape, head);
  const std::vector<Weight*> own = own_weights_of(head);
  for (Weight* const weight : own) name_tensors(shape, *weight);
  freeze(shape.frozen_head, own);
  return head;
}

}  // namespace sluice::model
