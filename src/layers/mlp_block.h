// The MLP half of a decoder layer: x + W_down·swiglu(W_gate_up·norm(x)), or with the norm behind it
// (residual.h).
//
// Row names: S rows of this TP rank's shard, T all rows of the micro-batch; S = T ÷ tp.
// Widths: H hidden, F this rank's part of the inner width, G = 2F.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/context.h"
#include "layers/parameters.h"
#include "layers/part.h"
#include "layers/site.h"

namespace sluice::layers {

// What the backward needs of a forward.
struct MlpSaved {
  at::Tensor x_SH;
  at::Tensor inverse_rms_S;
  at::Tensor gate_up_TG;
  at::Tensor product_SH;  // what a norm behind took; may be missing
};

// What the weight gradients need of a backward; undefined of what is not trained.
struct MlpDeferred {
  at::Tensor normed_SH;  // input of gate_up
  at::Tensor dgate_up_TG;
  at::Tensor a_TF;  // input of down
  at::Tensor dy_SH;
  at::Tensor dy_TH;  // dy gathered, while it is at hand; else undefined and gathered again
  std::vector<NarrowRows> gate_up, down;  // of the matrices' adapters
};

std::vector<SavedRows> rows_of(MlpSaved& saved);
std::vector<SavedRows> rows_of(MlpDeferred& deferred);

// `saved` null: nothing is kept (evaluation).
at::Tensor mlp_forward(const LayerContext& context, const MlpParameters& weights, const at::Tensor& x_SH,
                       MlpSaved* saved);

// What a forward of x_SH begins with and saves. With tp > 1 one all-gather.
MlpSaved mlp_first_half(const LayerContext& context, const MlpParameters& weights, const at::Tensor& x_SH);

// Consumes `saved` (its gate_up becomes dgate_up); adds the norm's weight gradient; fills `deferred`.
// Returns dx_SH.
at::Tensor mlp_backward_input(const LayerContext& context, const MlpParameters& weights, MlpSaved saved,
                              const at::Tensor& dy_SH, const MlpParameters& gradients, MlpDeferred& deferred);

void mlp_backward_weight(const LayerContext& context, MlpDeferred deferred, const MlpParameters& gradients);

std::unique_ptr<const Part> make_mlp(const Site& site);

}  // namespace sluice::layers
