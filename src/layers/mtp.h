// A head's MTP layer on one TP rank (model::MtpLayer; DeepSeek-AI, DeepSeek-V3, 2024, equations 21 to 25).
//
// Row i, with the model's last normed row h_i, predicts the token behind the next one, t_(i+2):
//   z_i = projection · [token_norm(embedding(t_(i+1))); row_norm(h_i)],   p_i = softmax(head ·
//   norm(layer(z)_i))
// Its loss is the sum of −log p_i[t_(i+2)], and LayerContext::mtp_loss_weight multiplies its gradients.
//
// Forward and backward run within the head's forward, so no activations wait, and stages and their schedule
// stay those of a model without the layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "layers/embedding.h"
#include "layers/head.h"
#include "layers/operation.h"
#include "layers/row_norm.h"
#include "layers/site.h"
#include "model/layer.h"

namespace sluice::layers {

class Mtp {
 public:
  // `site`: the head's. REQUIRES: its kind has an MTP layer.
  explicit Mtp(const Site& site);

  // `flow`: what the head was given. Adds to the head's result the gradient of its input, and two sums: the
  // loss and its number of targets. Adds all parameters' gradients.
  void forward_backward(const Flow& flow, HeadResult& result) const;
  // As Operation::help(), for both directions.
  void help(const DispatchedRows& rows) const;

 private:
  // The layer's parameters without its block's, or their gradients.
  struct Parameters {
    EmbeddingParameters embedding;
    HeadParameters head;  // with the MTP layer's norm
    NormVectors final_norm, token_norm, row_norm;
    at::Tensor projection_HD;  // D: 2 · hidden
  };
  Parameters bound(const OperationShards& shards) const;
  // The layer's input, and what its backward takes.
  struct Input;
  Input input_of(const Flow& flow) const;
  void input_backward(const Flow& flow, const Input& input, const at::Tensor& dz_SH, at::Tensor& dx_SH) const;

  const LayerContext& context_;
  LayerContext loss_context_;  // with the loss of this layer
  model::Program program_;     // the parameters refer to its values
  const model::Head& head_;
  Parameters weights_, gradients_;
  std::unique_ptr<Operation> block_;
};

}  // namespace sluice::layers
