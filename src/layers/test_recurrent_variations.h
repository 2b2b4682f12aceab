// Variations of recurrent layers, for tests. Header-only.
#pragma once

#include <vector>

#include "layers/test_variations.h"
#include "model/outline.h"

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
  using model::Outline;
  static const std::vector<Variation> all = {
      {"Recurrent",
       [](Outline& s) {
         s.recurrent = {
             .key_heads = 12, .value_heads = 12, .key_width = 3, .value_width = 2, .convolution = 4};
         s.block_types = {{.recurrent = true}, {.recurrent = true}};
       }},
      {"RecurrentBesideAttentionWithNormsBehind",
       [](Outline& s) {
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
       [](Outline& s) {
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
       [](Outline& s) {
         s.recurrent = {
             .key_heads = 12, .value_heads = 36, .key_width = 2, .value_width = 1, .convolution = 1};
         s.experts = {.count = 5, .per_token = 2, .hidden = 13};
         s.residual_scale = 0.4;
         s.block_types = {{.experts = true, .recurrent = true}, {.recurrent = true}};
       }},
      {"Mamba2",
       [](Outline& s) {
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
       [](Outline& s) {
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
       [](Outline& s) {
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
       [](Outline& s) {
         s.recurrent = gla();
         s.block_types = {{.recurrent = true}, {.recurrent = true}};
       }},
      {"GatedLinearAttentionBesideAttention",
       [](Outline& s) {
         s.recurrent = gla();
         s.norm_place = model::NormPlace::kBehind;
         s.block_types = {{.recurrent = true}, {}};
       }},
      {"KimiDeltaAttention",
       [](Outline& s) {
         s.recurrent = kda();
         s.block_types = {{.recurrent = true}, {.recurrent = true}};
       }},
      {"KimiDeltaAttentionBesideExperts",
       [](Outline& s) {
         s.recurrent = kda();
         s.experts = {.count = 5, .per_token = 2, .hidden = 13};
         s.residual_scale = 0.4;
         s.block_types = {{.experts = true, .recurrent = true}, {.rotates = false}};
       }},
  };
  return all;
}

}  // namespace sluice::layers
