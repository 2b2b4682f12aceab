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
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kGemma4Tensors[] = {{roles::kRouter, {"router.proj.weight"}},
                                          {roles::kExpertsGateUp, {"experts.gate_up_proj"}, Stack::kOutIn},
                                          {roles::kExpertsDown, {"experts.down_proj"}, Stack::kOutIn}};

constexpr const char* kByLayer = "per_layer_config";

// The default: a quarter of each head rotates.
base::Json usual_rope(const Reader& config, Outline&) { return with_usual_ropes(config, 0.25); }

// Heads of layers without a window.
struct FullHeads {
  int64_t width = 0, kv_heads = 0;
  bool operator==(const FullHeads&) const = default;
};

// transformers 5 writes by layer the values that differ from the file's other keys.
FullHeads heads_by_layer(Reader& config, const base::Json& by_layer, const Outline& outline) {
  if (!by_layer.is_object()) config.refuse(kByLayer, by_layer, "an object of layers there");
  const FullHeads usual{outline.head_dim, outline.kv_heads};
  std::vector<FullHeads> all(static_cast<size_t>(outline.layers), usual);
  for (const auto& [key, changes] : by_layer.items()) {
    size_t layer = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), layer);
    const std::string where = base::text(config.name(), ": ", kByLayer, ": ", key);
    if (error != std::errc() || end != key.data() + key.size() || layer >= all.size())
      config.refuse(kByLayer, key, "layers of the model there");
    if (!changes.is_object()) config.refuse(kByLayer, changes, "an object for each layer there");
    Reader own(changes, where);
    all[layer] = {own.count_or(usual.width, "head_dim", kModelRanges.head_dim),
                  own.count_or(usual.kv_heads, "num_key_value_heads", kModelRanges.heads)};
    if (!own.unread().empty()) own.refuse(own.unread(), changes.at(own.unread()), "heads by layer");
  }
  std::optional<FullHeads> full;
  for (size_t layer = 0; layer < all.size(); ++layer) {
    const bool windowed = outline.block_type(static_cast<int64_t>(layer)).windowed;
    if (all[layer] != (windowed ? usual : full.value_or(all[layer])))
      config.refuse(kByLayer, by_layer, "like heads in layers with a window, and in all others");
    if (!windowed) full = all[layer];
  }
  return full.value_or(usual);
}

FullHeads read_full_heads(Reader& config, const Outline& outline, bool keys_are_values) {
  const FullHeads own{config.count_or(512, "global_head_dim", kModelRanges.head_dim),
                      config.count_or(outline.kv_heads, "num_global_key_value_heads", kModelRanges.heads)};
  if (const base::Json* const by_layer = config.find(kByLayer); by_layer != nullptr)
    return heads_by_layer(config, *by_layer, outline);
  return {own.width, keys_are_values ? own.kv_heads : outline.kv_heads};
}

void refuse_other_gemma4(Reader& config) {
  config.only("hidden_activation", "gelu_pytorch_tanh");
  config.only("use_bidirectional_attention", "vision");  // affects images only
  config.pass({"num_experts", "top_k_experts", "moe_intermediate_size"});
}

// The width of embeddings by layer, for E2B and E4B; 0: none. The table must have the embedding's vocabulary:
// otherwise some rows would never be read, or tokens would have none.
int64_t read_layer_inputs(Reader& config, const Outline& outline) {
  constexpr int64_t kAbsentWidth = 256, kAbsentRows = 262144;
  constexpr const char* kWidth = "hidden_size_per_layer_input";
  constexpr const char* kRows = "vocab_size_per_layer_input";
  const int64_t width =
      config.says(kWidth) ? config.count_or(0, kWidth, {0, int64_t{1} << 20}) : kAbsentWidth;
  const int64_t rows = config.count_or(kAbsentRows, kRows, kModelRanges.vocab);
  if (width == 0) return 0;
  if (rows != outline.vocab)
    config.refuse(kRows, rows, base::text("as many rows as vocab_size, ", outline.vocab));
  if (outline.experts.count > 0)
    config.refuse(kWidth, width, "models with experts without embeddings by layer, 0 there");
  return width;
}

// The last layers attend to the keys and values of the last layer of their kind before them.
struct SharedLayers {
  int64_t first;       // first layer that borrows
  int64_t ffn_hidden;  // width in layers that borrow
};
SharedLayers read_shared_layers(Reader& config, const Outline& outline) {
  constexpr const char* kShared = "num_kv_shared_layers";
  const int64_t count = config.count_or(0, kShared, {0, outline.layers});
  const bool wide = config.has("use_double_wide_mlp");
  const SharedLayers shared{outline.layers - count, wide ? 2 * outline.ffn_hidden : outline.ffn_hidden};
  for (int64_t layer = shared.first; layer < outline.layers; ++layer) {
    const auto alike = [&](int64_t other) {
      return outline.block_type(other).windowed == outline.block_type(layer).windowed;
    };
    int64_t lender = shared.first - 1;
    while (lender >= 0 && !alike(lender)) --lender;
    if (lender < 0)
      config.refuse(kShared, count,
                    "fewer: a layer with a window and one without in front of those that share");
  }
  return shared;
}

// Layers with a window share slot 0, the others slot 1.
void share_keys(const Outline& outline, int64_t first, int64_t layer, Attention& own) {
  if (first == outline.layers) return;
  const auto windowed = [&](int64_t other) { return outline.block_type(other).windowed; };
  own.key_slot = windowed(layer) ? 0 : 1;
  bool lends = layer < first, borrowed = false;
  for (int64_t other = layer + 1; other < first; ++other) lends = lends && windowed(other) != windowed(layer);
  for (int64_t other = first; other < outline.layers; ++other)
    borrowed = borrowed || windowed(other) == windowed(layer);
  own.sharing = layer >= first      ? KeySharing::kBorrows
                : lends && borrowed ? KeySharing::kLends
                                    : KeySharing::kOwn;
}

void read_routed(Reader& config, Outline& outline) {
  if (!config.has("enable_moe_block")) return;
  Experts& experts = outline.experts;
  experts.count = config.count("num_experts", kModelRanges.experts);
  experts.per_token = config.count("top_k_experts", {1, experts.count});
  experts.hidden = width(config, "moe_intermediate_size");
  experts.normalised = true;
  spread_types(outline);
  for (BlockType& type : outline.block_types) type.experts = true;
}

// Changes the MLP: experts beside it or embeddings by layer behind it, if the outline has them, and the
// factor on a layer's result.
void change_feeding(const Outline& outline, int64_t ffn_hidden, int64_t input_width, Layer& layer) {
  const Gate gate{.activation = outline.activation};
  const bool routed = std::holds_alternative<RoutedExperts>(layer.parts[1].mixer);
  if (routed || ffn_hidden != outline.ffn_hidden)
    replace_part(outline, layer.parts[1], mlp_part({ffn_hidden, gate}, outline.hidden, {}));
  if (routed) {
    put_beside_mlp(outline, layer,
                   experts_part({.experts = outline.experts,
                                 .gate = gate,
                                 .router_norm_eps = outline.norm_eps,
                                 .expert_scales = true},
                                outline.hidden));
  }
  if (input_width > 0) {
    Part part = layer_input_part({input_width, outline.activation}, outline.hidden);
    part.behind = norm({roles::kLayerInputNormBehind, {}}, "post_per_layer_input_norm.weight", outline.hidden,
                       outline.norm, outline.norm_eps, outline.norm_offset);
    for (Weight& weight : part.weights) name_tensors(outline, weight);
    layer.parts.push_back(std::move(part));
  }
  layer.scalar = vector(roles::kLayerScalar, {"layer_scalar"}, {{1, 0}}, Start::kOne);
  layer.scalar->fixed = true;
  layer.scalar->adapts = false;
}

void read_sizes(Reader& config, Outline& outline) {
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
               outline);
  outline.qkv_bias = outline.out_bias = config.has("attention_bias");
  outline.activation = Activation::kGeluTanh;
  outline.norm_place = NormPlace::kAround;
  outline.qk_norm = QkNorm::kEachHead;
  outline.attention_scale = 1;
  outline.embedding_scale = std::sqrt(static_cast<double>(outline.hidden));
  outline.logit_cap = config.number_or(0.0, "final_logit_softcapping", kModelRanges.factor);
}

// The last layer has no window, whatever the file says.
void read_attention_windows(Reader& config, Outline& outline) {
  read_window(config, 512, outline);
  if (outline.window == 0) config.refuse("sliding_window", nullptr, "a window's width");
  read_layer_types(config, outline, [&](int64_t layer) { return (layer + 1) % 6 != 0; });
  spread_types(outline);
  outline.block_types.back().windowed = false;
  const std::optional<Rope> window_rope = window_rope_from_hugging_face(config, 10000.0);
  if (outline.window > 0) outline.window_rope = window_rope;
}

}  // namespace

extern const Names kGemma4Names{kGemma4Tensors};

void read_gemma4(Reader& config, Outline& outline) {
  refuse_other_gemma4(config);
  read_sizes(config, outline);
  read_attention_windows(config, outline);
  read_routed(config, outline);
  const bool keys_are_values = config.has("attention_k_eq_v");
  const FullHeads full = read_full_heads(config, outline, keys_are_values);
  const int64_t input_width = read_layer_inputs(config, outline);
  const SharedLayers shared = read_shared_layers(config, outline);
  change_each_layer(outline, [&](int64_t index, const BlockType& type, Layer& layer) {
    Attention own = std::get<Attention>(layer.parts[0].mixer);
    own.normed_values = true;
    if (!type.windowed) {
      own.head_dim = own.rotated = full.width;
      own.kv_heads = full.kv_heads;
      own.keys_are_values = keys_are_values;
    }
    share_keys(outline, shared.first, index, own);
    replace_part(outline, layer.parts[0],
                 attention_part(own, outline.hidden, {outline.qkv_bias, outline.out_bias}));
    change_feeding(outline, index >= shared.first ? shared.ffn_hidden : outline.ffn_hidden, input_width,
                   layer);
  });
}

}  // namespace sluice::model
