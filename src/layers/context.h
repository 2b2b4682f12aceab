// What all layers of a rank share under one strategy.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "layers/lane_channel.h"
#include "layers/loss.h"
#include "layers/product.h"
#include "layers/tensor_parallel.h"
#include "model/parameters.h"
#include "model/shape.h"
#include "ops/rotary.h"

namespace sluice::layers {

// This lane's place among those that divide each layer's experts between them.
struct ExpertLanes {
  int lanes = 1;
  int lane = 0;
  // By layer of the model the experts of each seat (model/expert_seats.h); none: even parts in their order.
  std::span<const std::vector<int>> seats = {};

  std::span<const int> seats_of(int64_t layer) const {
    return seats.empty() || layer < 0 ? std::span<const int>() : seats[static_cast<size_t>(layer)];
  }
};

// How rows visited experts that lanes divide, forward.
struct ExpertLoad {
  // The busiest lane's visits over the mean lane's: the sum over layers and micro-batches, and their number.
  double sum = 0;
  int64_t count = 0;
  // By layer of the model, and expert: visits of this lane's rows. None of a layer that ran none.
  std::vector<std::vector<int64_t>> visits;
  // Likewise, of pairs of experts those of its rows that visited both, double [E, E]; where it is asked for.
  std::vector<at::Tensor> together;
  bool asks_together = false;

  // `id_TK`: the experts of the rows.
  void add(int64_t layer, double busiest, std::span<const int64_t> visits_E, const at::Tensor& id_TK);
};

// Which layers of the model compute their products in fewer bits, and what that would add.
struct NarrowLayers {
  base::ProductFormat format = base::ProductFormat::kAsComputed;
  std::span<const int> layers = {};  // ascending
  ProductErrors* errors = nullptr;   // borrowed, added to by all layers; null: nobody asks
};

// Immutable and cheap to copy.
struct LayerContext {
  model::Shape shape;
  TensorParallel parallel;
  LaneChannel* lanes = nullptr;  // borrowed; null: no unit lies on several
  ExpertLanes experts;           // that divide experts between them
  ExpertLoad* load = nullptr;    // borrowed, added to; null: nobody asks
  NarrowLayers narrow;
  model::BlockType type;           // of these layers
  ops::RotaryTable rotary;         // of layers without a window; positions up to the longest sequence
  ops::RotaryTable window_rotary;  // of those with one
  std::shared_ptr<const Loss> loss = cross_entropy();  // of training
  double balance_loss = 0;         // factor of the loss that balances experts (balance.h); 0: none
  int64_t logits_chunk_bytes = 0;  // the head works on as many rows at once as fit; see head.h

  // Which part of an operation's parameters this rank computes with; `layer`: its number among the blocks.
  model::Cut cut(int64_t layer) const {
    const std::span<const int> all = experts.seats_of(layer);
    const size_t own = all.size() / static_cast<size_t>(experts.lanes);
    return {.tp = parallel.tp,
            .t = parallel.t,
            .expert_lanes = experts.lanes,
            .expert_lane = experts.lane,
            .own_experts = all.subspan(own * static_cast<size_t>(experts.lane), own)};
  }
  Narrowing narrowing(int64_t layer) const {
    const bool is_narrow = layer >= 0 && std::ranges::binary_search(narrow.layers, layer);
    return {.format = is_narrow ? narrow.format : base::ProductFormat::kAsComputed,
            .errors = layer >= 0 ? narrow.errors : nullptr,
            .layer = layer};
  }
  // This TP rank's heads; key/value heads are shared by several ranks when tp is larger than their number.
  int64_t local_heads() const { return shape.heads / parallel.tp; }
  // Of the products of queries and keys, before the softmax.
  double score_scale() const {
    if (shape.attention_scale > 0) return shape.attention_scale;
    return 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  }
  int64_t window() const { return type.windowed ? shape.window : 0; }
  const ops::RotaryTable& own_rotary() const { return type.windowed ? window_rotary : rotary; }
  int64_t local_kv_heads() const { return parallel.tp > shape.kv_heads ? 1 : shape.kv_heads / parallel.tp; }
};

// `like` gives device and compute type; `positions` is the context length. Throws base::InputError with
// model::tp_fault's text when tp cannot cut the shape.
LayerContext layer_context(const model::Shape& shape, const TensorParallel& parallel, int64_t positions,
                           const at::TensorOptions& like);

// What the logits of one chunk of rows should take of a device.
int64_t default_logits_chunk_bytes(const at::Device& device);

}  // namespace sluice::layers
