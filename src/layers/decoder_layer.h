// A decoder layer on one TP rank: forward, backward with respect to its input (B), and weight gradients (W),
// each an explicit function. Gradients are of the sum of token losses; accumulators are added to.
//
// All TP ranks of a group call the same functions in the same order. Activations are row shards
// (tensor_parallel.h). No function keeps state; weights and accumulators are the caller's.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "layers/attention_block.h"
#include "layers/mlp_block.h"
#include "layers/operation.h"

namespace sluice::layers {

struct LayerSaved {
  AttentionSaved attention;
  MlpSaved mlp;
};

// Leaves only what a backward cannot make again without running attention: the layer's input, attention's
// output and log-sum-exp (LightSeq's border). The backwards below then begin with the missing rest; with
// tp > 1 that takes two all-gathers and a reduce-scatter, where lanes exchange heads that exchange again.
void drop_recomputable(LayerSaved& saved);

struct LayerDeferred {
  AttentionDeferred attention;
  MlpDeferred mlp;
};

// All their tensors, those that are missing too.
std::vector<SavedRows> rows_of(LayerSaved& saved);
std::vector<SavedRows> rows_of(LayerDeferred& deferred);

// Memory that the tensors hold.
int64_t bytes_of(const LayerSaved& saved);
int64_t bytes_of(const LayerDeferred& deferred);

// Returns the layer's output; `saved` null: nothing is kept (evaluation).
at::Tensor layer_forward(const LayerContext& context, const MicroBatchLayout& layout,
                         const LayerParameters& weights, const at::Tensor& x_SH, LayerSaved* saved);

// B: returns dx, adds the norms' gradients, and leaves in `deferred` what W needs, without gathered copies.
// dy_SH is kept there: nobody may overwrite it before W.
at::Tensor layer_backward_input(const LayerContext& context, const MicroBatchLayout& layout,
                                const LayerParameters& weights, LayerSaved saved, const at::Tensor& dy_SH,
                                const LayerParameters& gradients, LayerDeferred& deferred);

// W: adds the matrices' gradients; with tp > 1 gathers its inputs again (four all-gathers).
void layer_backward_weight(const LayerContext& context, LayerDeferred deferred,
                           const LayerParameters& gradients);

// B and W at once: the same sums as the two calls, with half of W's all-gathers and less memory.
at::Tensor layer_backward(const LayerContext& context, const MicroBatchLayout& layout,
                          const LayerParameters& weights, LayerSaved saved, const at::Tensor& dy_SH,
                          const LayerParameters& gradients);

}  // namespace sluice::layers
