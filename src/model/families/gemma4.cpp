#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/families/rope_keys.h"
#include "model/layer_of.h"
#include "model/make_parts.h"
#include "model/roles.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

constexpr TensorNames kGemma4Tensors[] = {{roles::kRouter, {"router.proj.weight"}},
                                          {roles::kExpertsGateUp, {"experts.gate_up_proj"}, Stack::kOutIn},
                                          {roles::kExpertsDown, {"experts.down_proj"}, Stack::kOutIn}};

constexpr const char* kByLayer = "per_layer_config";

// A quarter of each head turns where the file says nothing.
base::Json usual_rope(const Reader& config, Shape&) { return with_usual_ropes(config, 0.25); }

// Heads of layers without a window.
struct FullHeads {
  int64_t width = 0, kv_heads = 0;
  bool operator==(const FullHeads&) const = default;
};

// transformers 5 writes by layer what differs from the file's other keys.
FullHeads heads_by_layer(Reader& config, const base::Json& by_layer, const Shape& shape) {
  if (!by_layer.is_object()) config.refuse(kByLayer, by_layer, "an object of layers there");
  const FullHeads usual{shape.head_dim, shape.kv_heads};
  std::vector<FullHeads> all(static_cast<size_t>(shape.layers), usual);
  for (const auto& [key, changes] : by_layer.items()) {
    size_t layer = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), layer);
    const std::string where = base::text(config.name(), ": ", kByLayer, ": ", key);
    if (error != std::errc() || end != key.data() + key.size() || layer >= all.size())
      config.refuse(kByLayer, key, "layers of the model there");
    if (!changes.is_object()) config.refuse(kByLayer, changes, "an object for each layer there");
    Reader own(changes, where);
    all[layer] = {own.count_or(usual.width, "head_dim", kShapeRanges.head_dim),
                  own.count_or(usual.kv_heads, "num_key_value_heads", kShapeRanges.heads)};
    if (!own.unread().empty()) own.refuse(own.unread(), changes.at(own.unread()), "heads by layer");
  }
  std::optional<FullHeads> full;
  for (size_t layer = 0; layer < all.size(); ++layer) {
    const bool windowed = shape.block_type(static_cast<int64_t>(layer)).windowed;
    if (all[layer] != (windowed ? usual : full.value_or(all[layer])))
      config.refuse(kByLayer, by_layer, "like heads in layers with a window, and in all others");
    if (!windowed) full = all[layer];
  }
  return full.value_or(usual);
}

FullHeads read_full_heads(Reader& config, const Shape& shape, bool keys_are_values) {
  const FullHeads own{config.count_or(512, "global_head_dim", kShapeRanges.head_dim),
                      config.count_or(shape.kv_heads, "num_global_key_value_heads", kShapeRanges.heads)};
  if (const base::Json* const by_layer = config.find(kByLayer); by_layer != nullptr)
    return heads_by_layer(config, *by_layer, shape);
  return {own.width, keys_are_values ? own.kv_heads : shape.kv_heads};
}

void refuse_other_gemma4(Reader& config) {
  config.only("hidden_activation", "gelu_pytorch_tanh");
  config.only("num_kv_shared_layers", 0);
  config.only("use_bidirectional_attention", "vision");  // of images alone
  const int64_t absent = 256;
  const int64_t by_layer = config.says("hidden_size_per_layer_input")
                               ? config.count_or(0, "hidden_size_per_layer_input", {0, int64_t{1} << 20})
                               : absent;
  if (by_layer > 0)
    config.refuse("hidden_size_per_layer_input", by_layer, "models without embeddings by layer, 0 there");
  config.pass({"vocab_size_per_layer_input", "use_double_wide_mlp", "num_experts", "top_k_experts",
               "moe_intermediate_size"});
}

void read_routed(Reader& config, Shape& shape) {
  if (!config.has("enable_moe_block")) return;
  Experts& experts = shape.experts;
  experts.count = config.count("num_experts", kShapeRanges.experts);
  experts.per_token = config.count("top_k_experts", {1, experts.count});
  experts.hidden = width(config, "moe_intermediate_size");
  experts.normalised = true;
  spread_types(shape);
  for (BlockType& type : shape.block_types) type.experts = true;
}

// The MLP with experts beside it, where there are some, and the number that a layer's result is multiplied
// with.
void change_feeding(const Shape& shape, Layer& layer) {
  const Gate gate{.activation = shape.activation};
  if (std::holds_alternative<RoutedExperts>(layer.parts[1].mixer)) {
    replace_part(shape, layer.parts[1], mlp_part({shape.ffn_hidden, gate}, shape.hidden, {}));
    put_beside_mlp(shape, layer,
                   experts_part({.experts = shape.experts,
                                 .gate = gate,
                                 .router_norm_eps = shape.norm_eps,
                                 .expert_scales = true},
                                shape.hidden));
  }
  layer.scalar = vector(roles::kLayerScalar, {"layer_scalar"}, {{1, 0}}, Start::kOne);
  layer.scalar->fixed = true;
  layer.scalar->adapts = false;
}

void read_sizes(Reader& config, Shape& shape) {
  read_decoder(config,
               {.kv_heads = 4,
                .heads = 8,
                .vocab = 262144,
                .head_dim = 256,
                .rope_theta = 1e6,
                .tied = true,
                .biases = true,
                .ropes_by_type = true,
                .activation = "gelu_pytorch_tanh",
                .own_rope = usual_rope},
               shape);
  shape.qkv_bias = shape.out_bias = config.has("attention_bias");
  shape.activation = Activation::kGeluTanh;
  shape.norm_place = NormPlace::kAround;
  shape.qk_norm = QkNorm::kEachHead;
  shape.attention_scale = 1;
  shape.embedding_scale = std::sqrt(static_cast<double>(shape.hidden));
  shape.logit_cap = config.number_or(0.0, "final_logit_softcapping", kShapeRanges.factor);
}

// The last layer has no window, whatever the file says.
void read_windows(Reader& config, Shape& shape) {
  read_window(config, 512, shape);
  if (shape.window == 0) config.refuse("sliding_window", nullptr, "a window's width");
  read_layer_types(config, shape, [&](int64_t layer) { return (layer + 1) % 6 != 0; });
  spread_types(shape);
  shape.block_types.back().windowed = false;
  const std::optional<Rope> window_rope = window_rope_from_hugging_face(config, 10000.0);
  if (shape.window > 0) shape.window_rope = window_rope;
}

}  // namespace

extern const Names kGemma4Names{kGemma4Tensors};

void read_gemma4(Reader& config, Shape& shape) {
  refuse_other_gemma4(config);
  read_sizes(config, shape);
  read_windows(config, shape);
  read_routed(config, shape);
  const bool keys_are_values = config.has("attention_k_eq_v");
  const FullHeads full = read_full_heads(config, shape, keys_are_values);
  change_layers(shape, [&](const BlockType& type, Layer& layer) {
    Attention own = std::get<Attention>(layer.parts[0].mixer);
    own.normed_values = true;
    if (!type.windowed) {
      own.head_dim = own.rotated = full.width;
      own.kv_heads = full.kv_heads;
      own.keys_are_values = keys_are_values;
    }
    replace_part(shape, layer.parts[0], attention_part(own, shape.hidden, {shape.qkv_bias, shape.out_bias}));
    change_feeding(shape, layer);
  });
}

}  // namespace sluice::model
