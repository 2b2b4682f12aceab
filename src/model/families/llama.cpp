#include <algorithm>

#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/layer_of.h"
#include "model/make_parts.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kLlama4Tensors[] = {
    {roles::kGateUp, {"feed_forward.gate_proj.weight", "feed_forward.up_proj.weight"}},
    {roles::kDown, {"feed_forward.down_proj.weight"}},
    {roles::kRouter, {"feed_forward.router.weight"}},
    {roles::kExpertsGateUp,
     {"feed_forward.experts.{}.gate_proj.weight", "feed_forward.experts.{}.up_proj.weight"}},
    {roles::kExpertsDown, {"feed_forward.experts.{}.down_proj.weight"}},
    {roles::kSharedGateUp,
     {"feed_forward.shared_expert.gate_proj.weight", "feed_forward.shared_expert.up_proj.weight"}},
    {roles::kSharedDown, {"feed_forward.shared_expert.down_proj.weight"}}};

// Layers with experts: those of a list, or every step-th layer.
void read_moe_layers(Reader& config, Outline& outline) {
  const base::Json* const list = config.find("moe_layers");
  const int64_t step = config.count_or(1, "interleave_moe_layer_step", kModelRanges.layers);
  if (list != nullptr && !list->is_array()) config.refuse("moe_layers", *list, "a list of layers there");
  spread_types(outline);
  for (int64_t layer = 0; layer < outline.layers; ++layer)
    outline.block_types[static_cast<size_t>(layer)].experts = list == nullptr && (layer + 1) % step == 0;
  if (list == nullptr) return;
  for (const base::Json& layer : *list) {
    const bool fits = base::holds_number<int64_t>(layer) && layer >= 0 && layer < outline.layers;
    if (!fits) config.refuse("moe_layers", layer, "layers of the model there");
    outline.block_types[layer.get<size_t>()].experts = true;
  }
}

// Layers with rotary positions see chunks of positions, unless layer_types says otherwise.
void read_chunks(Reader& config, Outline& outline) {
  constexpr const char* kChunk = "attention_chunk_size";
  for (BlockType& type : outline.block_types) type.windowed = type.rotates;
  read_named_layers(config, "layer_types", "chunked_attention", "full_attention", outline,
                    [&](int64_t layer, bool chunked) {
                      outline.block_types[static_cast<size_t>(layer)].windowed = chunked;
                    });
  outline.window = config.says(kChunk) ? config.count_or(0, kChunk, kModelRanges.window) : 8192;
  const bool any = std::ranges::any_of(outline.block_types, &BlockType::windowed);
  if (any && outline.window == 0) config.refuse(kChunk, nullptr, "a chunk's width");
  if (!any) outline.window = 0;
}

}  // namespace

extern const Names kLlama4Names{kLlama4Tensors};

void read_llama(Reader& config, Outline& outline) { read_decoder(config, {}, outline); }

void read_llama4(Reader& config, Outline& outline) {
  read_decoder(config,
               {.kv_heads = 8,
                .head_dim = 128,
                .norm_eps = 1e-5,
                .rope_theta = 5e5,
                .ffn_key = "intermediate_size_mlp"},
               outline);
  read_rotations(config, outline);
  read_chunks(config, outline);
  read_experts(config, width(config, "intermediate_size"), outline);
  config.only("router_jitter_noise", 0.0);
  outline.experts.sigmoid = true;
  outline.experts.shared_hidden = outline.experts.hidden;
  read_moe_layers(config, outline);
  QueryGrowth growth{.beta = config.number_or(0.1, "attn_scale", {0.0, kModelRanges.factor.most}),
                     .positions = config.count_or(8192, "floor_scale", kModelRanges.window),
                     .first = 1};
  if (config.lacks("attn_temperature_tuning")) growth = {};
  const bool normed = !config.lacks("use_qk_norm");
  change_layers(outline, [&](const BlockType& type, Layer& layer) {
    Attention own = std::get<Attention>(layer.parts[0].mixer);
    own.turning = Turning::kNeighbours;
    own.chunked = type.windowed;
    if (!type.rotates) own.growth = growth;
    if (type.rotates && normed) {
      own.head_norm = QkNorm::kEachHead;
      own.head_norm_style = {.behind_rotation = true, .weights = false};
    }
    replace_part(outline, layer.parts[0], attention_part(own, outline.hidden, {}));
    auto* const routed = std::get_if<RoutedExperts>(&layer.parts[1].mixer);
    if (routed == nullptr) return;
    RoutedExperts weighed = *routed;
    weighed.gate.weighs_input = true;
    replace_part(outline, layer.parts[1], experts_part(weighed, outline.hidden));
  });
}

void read_internlm3(Reader& config, Outline& outline) {
  config.off("qkv_bias");
  config.off("bias");
  read_decoder(config, {.kv_heads = 2, .head_dim = 128, .norm_eps = 1e-5}, outline);
}

// Published files have a dropout of 0.1, which is ignored: Sluice trains without dropout.
void read_seed_oss(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 8, .head_dim = 128, .drops_out = true, .biases = true}, outline);
  outline.qkv_bias = !config.lacks("attention_bias");
  outline.out_bias = config.has("attention_out_bias");
}

}  // namespace sluice::model
