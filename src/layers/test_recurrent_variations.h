// Variations of recurrent layers, for tests. Header-only.
#pragma once

#include <vector>

#include "layers/test_variations.h"

namespace sluice::layers {

inline model::Recurrent gla() {
  return {.recurrence = model::Recurrence::kGla,
          .key_heads = 12,
          .value_heads = 12,
          .key_width = 3,
          .value_width = 2,
          .convolution = 1,
          .decay_rank = 4};
}

inline model::Recurrent kda() {
  return {.recurrence = model::Recurrence::kKda,
          .key_heads = 12,
          .value_heads = 12,
          .key_width = 3,
          .value_width = 2,
          .convolution = 4,
          .decay_rank = 5};
}

inline const std::vector<Variation>& recurrent_variations() {
  using model::Shape;
  static const std::vector<Variation> all = {
      {"Recurrent",
       [](Shape& s) {
         s.recurrent = {
             .key_heads = 12, .value_heads = 12, .key_width = 3, .value_width = 2, .convolution = 4};
         s.block_types = {{.recurrent = true}, {.recurrent = true}};
       }},
      {"RecurrentBesideAttentionWithNormsBehind",
       [](Shape& s) {
         s.recurrent = {.key_heads = 12,
                        .value_heads = 24,
                        .key_width = 2,
                        .value_width = 5,
                        .convolution = 2,
                        .rate_scale = 2.0};
         s.norm_place = model::NormPlace::kBehind;
         s.qk_norm = model::QkNorm::kAllHeads;
         s.block_types = {{.recurrent = true}, {.rotates = false}};
       }},
      {"RecurrentByKeyHead",
       [](Shape& s) {
         s.recurrent = {.key_heads = 12,
                        .value_heads = 24,
                        .key_width = 3,
                        .value_width = 2,
                        .convolution = 3,
                        .by_key_head = true};
         s.norm_offset = 1.0;
         s.experts = {.count = 5, .per_token = 2, .hidden = 13};
         s.block_types = {{.experts = true, .recurrent = true}, {.recurrent = true}};
       }},
      {"RecurrentBesideExpertsWithAnOffset",
       [](Shape& s) {
         s.recurrent = {
             .key_heads = 12, .value_heads = 36, .key_width = 2, .value_width = 1, .convolution = 1};
         s.experts = {.count = 5, .per_token = 2, .hidden = 13};
         s.residual_scale = 0.4;
         s.block_types = {{.experts = true, .recurrent = true}, {.recurrent = true}};
       }},
      {"Mamba2",
       [](Shape& s) {
         s.recurrent = {.recurrence = model::Recurrence::kMamba2,
                        .key_heads = 12,
                        .value_heads = 24,
                        .key_width = 3,
                        .value_width = 2,
                        .convolution = 4,
                        .convolution_bias = true};
         s.block_types = {{.recurrent = true}, {.rotates = false}};
         s.residual_scale = 0.4;
       }},
      {"Mamba2WithoutABiasBesideExperts",
       [](Shape& s) {
         s.recurrent = {.recurrence = model::Recurrence::kMamba2,
                        .key_heads = 12,
                        .value_heads = 12,
                        .key_width = 2,
                        .value_width = 5,
                        .convolution = 2};
         s.experts = {.count = 5, .per_token = 2, .hidden = 13};
         s.block_types = {{.experts = true, .recurrent = true}, {.recurrent = true}};
       }},
      {"Mamba2WithoutAnMlp",
       [](Shape& s) {
         s.recurrent = {.recurrence = model::Recurrence::kMamba2,
                        .key_heads = 12,
                        .value_heads = 24,
                        .key_width = 3,
                        .value_width = 2,
                        .convolution = 4,
                        .convolution_bias = true};
         s.ffn_hidden = 0;
         s.block_types = {{.recurrent = true}, {.recurrent = true}};
       }},
      {"GatedLinearAttention",
       [](Shape& s) {
         s.recurrent = gla();
         s.block_types = {{.recurrent = true}, {.recurrent = true}};
       }},
      {"GatedLinearAttentionBesideAttention",
       [](Shape& s) {
         s.recurrent = gla();
         s.norm_place = model::NormPlace::kBehind;
         s.block_types = {{.recurrent = true}, {}};
       }},
      {"KimiDeltaAttention",
       [](Shape& s) {
         s.recurrent = kda();
         s.block_types = {{.recurrent = true}, {.recurrent = true}};
       }},
      {"KimiDeltaAttentionBesideExperts",
       [](Shape& s) {
         s.recurrent = kda();
         s.experts = {.count = 5, .per_token = 2, .hidden = 13};
         s.residual_scale = 0.4;
         s.block_types = {{.experts = true, .recurrent = true}, {.rotates = false}};
       }},
  };
  return all;
}

}  // namespace sluice::layers
