#include <string>

#include "base/text.h"
#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/families/recurrent_keys.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

using base::Json;

constexpr TensorNames kKimiTensors[] = {
    {roles::kConvolution,
     {"self_attn.q_conv1d.weight", "self_attn.k_conv1d.weight", "self_attn.v_conv1d.weight"}},
    {roles::kRouter, {"block_sparse_moe.gate.weight"}},
    {roles::kCorrection, {"block_sparse_moe.gate.e_score_correction_bias"}},
    {roles::kExpertsGateUp,
     {"block_sparse_moe.experts.{}.w1.weight", "block_sparse_moe.experts.{}.w3.weight"}},
    {roles::kExpertsDown, {"block_sparse_moe.experts.{}.w2.weight"}},
    {roles::kSharedGateUp,
     {"block_sparse_moe.shared_experts.gate_proj.weight", "block_sparse_moe.shared_experts.up_proj.weight"}},
    {roles::kSharedDown, {"block_sparse_moe.shared_experts.down_proj.weight"}}};

constexpr const char* kLinear = "linear_attn_config";

// Published files count layers from 1, in two lists.
void read_listed_layers(Reader& config, const Json& linear, Outline& outline) {
  const std::string where = base::text(config.name(), ": ", kLinear);
  Reader own(linear, where);
  std::vector<int> named(static_cast<size_t>(outline.layers));
  for (const auto& [key, recurrent] : {std::pair{"full_attn_layers", false}, {"kda_layers", true}}) {
    const Json& list = own.required(key);
    if (!list.is_array()) own.refuse(key, list, "a list of layers there");
    for (const Json& number : list) {
      const bool fits = base::holds_number<int64_t>(number) && number >= 1 && number <= outline.layers;
      if (!fits) own.refuse(key, number, base::text("layers from 1 to ", outline.layers, " there"));
      const size_t layer = number.get<size_t>() - 1;
      if (named[layer]++ > 0) own.refuse(key, number, "each layer in one of the two lists, once");
      outline.block_types[layer].recurrent = recurrent;
    }
  }
  for (size_t layer = 0; layer < named.size(); ++layer) {
    if (named[layer] == 0)
      own.refuse("kda_layers", own.json().at("kda_layers"), base::text("lists with layer ", layer + 1));
  }
}

void read_layers(Reader& config, Outline& outline) {
  for (size_t layer = 0; layer < outline.block_types.size(); ++layer)
    outline.block_types[layer].recurrent = layer == 0 || layer % 4 != 0;
  const Json* const linear = config.find(kLinear);
  if (config.find("layer_types") != nullptr) {
    read_recurrent_types(config, 4, outline);
  } else if (linear != nullptr) {
    read_listed_layers(config, *linear, outline);
  }
}

void read_kda(Reader& config, Outline& outline) {
  const Json* const linear = config.find(kLinear);
  const auto count = [&](int64_t absent, const char* key, const char* old,
                         const base::Range<int64_t>& range) {
    if (linear != nullptr && !linear->is_object()) config.refuse(kLinear, *linear, "an object there");
    if (linear != nullptr && linear->contains(old))
      return base::require_in(*linear, old, range, base::text(config.name(), ": ", kLinear));
    return config.count_or(absent, key, range);
  };
  const int64_t heads = count(32, "linear_num_heads", "num_heads", kModelRanges.heads);
  const int64_t width = count(128, "linear_head_dim", "head_dim", kModelRanges.recurrent_width);
  config.pass({"linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"});
  outline.recurrent = {.recurrence = Recurrence::kKda,
                       .key_heads = heads,
                       .value_heads = heads,
                       .key_width = width,
                       .value_width = width,
                       .convolution = count(4, "linear_conv_kernel_dim", "short_conv_kernel_size",
                                            {2, kModelRanges.convolution.most}),
                       .decay_rank = width,
                       .norm_eps = outline.norm_eps};
}

// Files have one of two names for each key.
const char* either(Reader& config, const char* key, const char* published) {
  return config.says(published) ? published : key;
}

}  // namespace

extern const Names kKimiNames{kKimiTensors};

void read_kimi_linear(Reader& config, Outline& outline) {
  config.only("moe_router_activation_func", "sigmoid");
  config.only("topk_method", "noaux_tc");
  config.only("mla_use_nope", true);
  config.only("q_lora_rank", nullptr);
  config.pass({"use_grouped_topk"});
  outline.latent = {.kv_rank = config.count_or(512, "kv_lora_rank", kModelRanges.hidden),
                    .unrotated = config.count_or(128, "qk_nope_head_dim", kModelRanges.head_dim),
                    .rotated = config.count_or(64, "qk_rope_head_dim", kModelRanges.head_dim),
                    .values = config.count_or(128, "v_head_dim", kModelRanges.head_dim)};
  read_decoder(config, {.norm_eps = 1e-5}, outline);
  config.only("num_key_value_heads", outline.heads);
  config.only("qk_head_dim", outline.head_dim);
  outline.rotated = outline.latent.rotated;
  read_scored_experts(config,
                      {.dense = 1,
                       .factor = 2.446,
                       .count_key = either(config, "num_local_experts", "num_experts"),
                       .shared_key = either(config, "n_shared_experts", "num_shared_experts"),
                       .chosen_key = either(config, "num_experts_per_tok", "num_experts_per_token"),
                       .groups_key = either(config, "n_group", "num_expert_group"),
                       .normalised_key = either(config, "norm_topk_prob", "moe_renormalize")},
                      outline);
  read_mlp_types(config, outline);
  spread_types(outline);
  for (BlockType& type : outline.block_types) type.rotates = false;
  read_layers(config, outline);
  read_kda(config, outline);
}

}  // namespace sluice::model
