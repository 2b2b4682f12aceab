// What a block's saved tensors weigh, by formula; the tests hold it against the tensors themselves.
#pragma once

#include <cstdint>

#include "layers/context.h"
#include "layers/micro_batch_layout.h"
#include "model/shape.h"

namespace sluice::layers {

// One TP rank's cut of a layer, its place among lanes that exchange heads, and the width of its numbers.
struct LayerCut {
  int tp = 1;
  int t = 0;
  int64_t element_bytes = 4;  // 2, 4 or 8; statistics (norms, log-sum-exp) take 4, or 8 with 8
  int head_lanes = 1;         // of a head group; 1: heads stay
  int head_lane = 0;
  int64_t attended_rows = 0;  // with more than one: of all lanes of the group
  int64_t own_rows = 0;       // then: of sequences that are the lane's alone
};

// Of the rank that holds this weight and works on such a micro-batch.
LayerCut cut_of(const LayerContext& context, const MicroBatchLayout& layout, const at::Tensor& weight);

// Bytes of a block's state from forward to backward, and from B to W, of a micro-batch of `rows` rows, inert
// ones included. REQUIRES: tp divides rows and cuts the shape.
int64_t saved_bytes(const model::Shape& shape, const LayerCut& cut, int64_t rows);
// From forward to backward after drop_recomputable.
int64_t border_bytes(const model::Shape& shape, const LayerCut& cut, int64_t rows);
int64_t deferred_bytes(const model::Shape& shape, const LayerCut& cut, int64_t rows);
// What a backward after drop_recomputable makes again of either part.
int64_t recomputed_attention_bytes(const model::Shape& shape, const LayerCut& cut, int64_t rows);
int64_t recomputed_mlp_bytes(const model::Shape& shape, const LayerCut& cut, int64_t rows);

// The same a token, rounded up, on the TP rank that has most.
int64_t saved_bytes_per_token(const model::Shape& shape, int tp, int64_t element_bytes);
int64_t deferred_bytes_per_token(const model::Shape& shape, int tp, int64_t element_bytes);

}  // namespace sluice::layers
