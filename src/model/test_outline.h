// Small models for tests and benchmarks of every module, to plan, save and train. Header-only; not part of
// the library.
#pragma once

#include <cstdint>
#include <functional>

#include "model/model.h"
#include "model/outline.h"

namespace sluice::model {

// The model with a changed outline.
inline Model changed(const Model& model, const std::function<void(Outline&)>& change) {
  Outline outline = model.outline();
  change(outline);
  return outline;
}

// The quick start's model: 4 query heads on 2 key-value heads; TP degrees up to 2 cut it (4 the query heads
// alone).
inline Outline test_outline(int64_t layers = 4) {
  return {.layers = layers,
          .hidden = 128,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 32,
          .ffn_hidden = 336,
          .vocab = 2048};
}

// Equally wide, for the machine that runs comparisons and studies: TP up to 4.
inline Outline test_outline_of_8_heads() {
  return {.layers = 4,
          .hidden = 128,
          .heads = 8,
          .kv_heads = 4,
          .head_dim = 16,
          .ffn_hidden = 336,
          .vocab = 2048};
}

// For counting by hand. A layer has 64x (64 + 2·32) + 64·64 + 3·64·96 + 2·64 = 30,848 parameters; embedding
// and head have 100·64 each.
inline Outline counted_outline(bool tied = false) {
  return {.layers = 5,
          .hidden = 64,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 16,
          .ffn_hidden = 96,
          .vocab = 100,
          .tie_embeddings = tied};
}

// 12 heads, which many TP degrees divide.
inline Outline outline_of_12_heads(int64_t layers = 4, bool tied = false) {
  return {.layers = layers,
          .hidden = 24,
          .heads = 12,
          .kv_heads = 12,
          .head_dim = 2,
          .ffn_hidden = 24,
          .vocab = 48,
          .tie_embeddings = tied};
}

// 12 query heads on 6 key-value heads, and sizes that no degree divides.
inline Outline outline_of_odd_sizes() {
  return {
      .layers = 4, .hidden = 24, .heads = 12, .kv_heads = 6, .head_dim = 8, .ffn_hidden = 37, .vocab = 61};
}

// A model with two heads, to plan and train quickly.
inline Outline outline_of_2_heads() {
  return {
      .layers = 2, .hidden = 32, .heads = 2, .kv_heads = 2, .head_dim = 16, .ffn_hidden = 64, .vocab = 128};
}

// A model with few parameters, whose slices end within parameters.
inline Outline sliced_outline(int64_t layers = 2) {
  return {.layers = layers,
          .hidden = 24,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 6,
          .ffn_hidden = 40,
          .vocab = 50};
}

// A model with very few parameters, to save and to load.
inline Outline saved_outline(int64_t layers = 2) {
  return {
      .layers = layers, .hidden = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .ffn_hidden = 12, .vocab = 19};
}

// For exports: equally small, with heads that share keys and values.
inline Outline exported_outline(bool tied = false) {
  return {.layers = 2,
          .hidden = 12,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 4,
          .ffn_hidden = 20,
          .vocab = 33,
          .tie_embeddings = tied};
}

}  // namespace sluice::model
