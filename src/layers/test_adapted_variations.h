// Variations of layers with adapters, for tests. Header-only.
#pragma once

#include <vector>

#include "layers/test_variations.h"
#include "model/test_tuning.h"

namespace sluice::layers {

inline const std::vector<Variation>& adapted_variations() {
  using model::Outline;
  static const std::vector<Variation> all{
      {"AdaptersOfRecurrentLayers",
       [](Outline& s) {
         s.recurrent = {
             .key_heads = 12, .value_heads = 24, .key_width = 3, .value_width = 2, .convolution = 4};
         s.block_types = {{.recurrent = true}, {}};
         model::adapt(s, {.rank = 2, .alpha = 3, .targets = {"all-linear"}});
       }},
      {"AdaptersOfExperts",
       [](Outline& s) {
         s.experts = {.count = 4, .per_token = 2, .hidden = 6, .shared_hidden = 9, .shared_gate = true};
         model::adapt(s, {.rank = 2,
                          .alpha = 3,
                          .targets = {"k_proj", "gate_proj", "down_proj", "mlp.experts.gate_up_proj",
                                      "mlp.experts.down_proj"}});
       }},
      {"AdaptersOfExpertsOfWhichFactorsAreFrozen",
       [](Outline& s) {
         s.experts = {.count = 5, .per_token = 3, .hidden = 6, .biases = true};
         model::adapt(s, {.rank = 2, .alpha = 3, .targets = {"experts.gate_up_proj", "experts.down_proj"}});
         model::freeze(s, {"model.layers.0.*gate_up_proj.lora_A*", "model.layers.1.*down_proj.lora_B*"});
       }},
      {"AdaptersOfLatentMatrices",
       [](Outline& s) {
         s.kv_heads = s.heads;
         s.head_dim = 8;
         s.latent = {.q_rank = 10, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
         s.rotated = 2;
         model::adapt(s, {.rank = 2, .alpha = 3, .targets = {"all-linear"}});
       }},
      {"AdaptersOfSome",
       [](Outline& s) {
         model::adapt(s, {.rank = 3, .alpha = 5, .targets = {"q_proj", "v_proj"}});
       }},
      {"AdaptersOfTheirOwnRanksAndAlphas",
       [](Outline& s) {
         s.experts = {.count = 4, .per_token = 2, .hidden = 6, .shared_hidden = 9};
         model::adapt(s, {.rank = 2,
                          .alpha = 3,
                          .targets = {"all-linear", "k_proj:1:5", "v_proj:3:0.5", "up_proj:4:7",
                                      "experts.gate_up_proj:5:2", "experts.down_proj"}});
       }},
      {"AdaptersOfAll",
       [](Outline& s) {
         s.norm_place = model::NormPlace::kAround;
         model::adapt(s, {.rank = 1, .alpha = 2, .targets = {"all-linear"}});
         model::freeze(s, {"model.layers.1.*.lora_A.weight"});
       }},
  };
  return all;
}

// DoRA.
inline const std::vector<Variation>& decomposed_variations() {
  using model::Outline;
  static const std::vector<Variation> all{
      {"DecomposedAdapters",
       [](Outline& s) {
         model::adapt(s, {.rank = 2, .alpha = 3, .targets = {"all-linear"}, .dora = true});
         model::freeze(s, {"model.layers.0.*k_proj.lora_magnitude_vector", "model.layers.1.*.lora_A.weight"});
       }},
      {"DecomposedAdaptersOfSome",
       [](Outline& s) {
         s.norm_place = model::NormPlace::kAround;
         s.experts = {.count = 4, .per_token = 2, .hidden = 6, .shared_hidden = 9, .shared_gate = true};
         s.qkv_bias = s.out_bias = true;
         model::adapt(
             s,
             {.rank = 2, .alpha = 3, .targets = {"q_proj", "v_proj", "o_proj", "down_proj"}, .dora = true});
       }},
      {"DecomposedAdaptersOfLatentMatrices",
       [](Outline& s) {
         s.kv_heads = s.heads;
         s.head_dim = 8;
         s.latent = {.q_rank = 10, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
         s.rotated = 2;
         model::adapt(s, {.rank = 2, .alpha = 3, .targets = {"all-linear"}, .dora = true});
       }},
  };
  return all;
}

}  // namespace sluice::layers
