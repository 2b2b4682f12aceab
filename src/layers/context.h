// What all layers of a rank share under one strategy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>
#include <memory>

#include "layers/lane_channel.h"
#include "layers/loss.h"
#include "layers/tensor_parallel.h"
#include "model/parameters.h"
#include "model/shape.h"
#include "ops/rotary.h"

namespace sluice::layers {

// This lane's place among those that divide each layer's experts between them.
struct ExpertLanes {
  int lanes = 1;
  int lane = 0;
};

// How unevenly rows visited these lanes' experts, forward: the busiest lane's visits over the mean lane's.
struct ExpertLoad {
  double sum = 0;  // over layers and micro-batches
  int64_t count = 0;
};

// Immutable and cheap to copy.
struct LayerContext {
  model::Shape shape;
  TensorParallel parallel;
  LaneChannel* lanes = nullptr;    // borrowed; null: no unit lies on several
  ExpertLanes experts;             // that divide experts between them
  ExpertLoad* load = nullptr;      // borrowed, added to; null: nobody asks
  model::BlockType type;           // of these layers
  ops::RotaryTable rotary;         // of layers without a window; positions up to the longest sequence
  ops::RotaryTable window_rotary;  // of those with one
  std::shared_ptr<const Loss> loss = cross_entropy();  // of training
  double balance_loss = 0;         // factor of the loss that balances experts (balance.h); 0: none
  int64_t logits_chunk_bytes = 0;  // the head works on as many rows at once as fit; see head.h

  // Which part of each operation's parameters this rank computes with.
  model::Cut cut() const { return {parallel.tp, parallel.t, experts.lanes, experts.lane}; }
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
