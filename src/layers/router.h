// Routers: how rows choose their experts and weigh the experts' outputs (model::Experts).
//
// Row names: S rows of this TP rank's shard; E experts, K of them a row.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "model/experts.h"

namespace sluice::layers {

// Scores: the softmax over all experts, or each expert's sigmoid, of rows·routerᵀ plus biases, which may be
// undefined. In float (double for double). [S, E]
at::Tensor router_scores(const model::Experts& experts, const at::Tensor& normed_SH,
                         const at::Tensor& router_EH, const at::Tensor& bias_E);

// The K experts with the highest scores, among the groups with the highest sums of their two best scores.
// `correction_E`, unless undefined, is added to scores. Ties go to the leftmost. int32 [S, K]
at::Tensor chosen_experts(const model::Experts& experts, const at::Tensor& score_SE,
                          const at::Tensor& correction_E);

// Weights of the chosen experts' outputs; `floor` is added to the sum that normalizes them. [S, K]
at::Tensor route_weights(const model::Experts& experts, double floor, const at::Tensor& score_SE,
                         const at::Tensor& id_SK);

// The gradient of rows·routerᵀ from that of the weights and, unless undefined, from that of the scores;
// sigmoid scores count as shares of their sum. The choice of experts has no gradient.
at::Tensor router_gradient(const model::Experts& experts, double floor, const at::Tensor& score_SE,
                           const at::Tensor& id_SK, const at::Tensor& dweight_SK,
                           const at::Tensor& dscore_SE = {});

// Rows·routerᵀ, which are the scores of SparseMixer (model::RoutedExperts::sparse_jitter).
at::Tensor router_logits(const at::Tensor& normed_SH, const at::Tensor& router_EH);
// The weights and their gradient for SparseMixer. The selection of logits near the highest has no gradient.
at::Tensor sparse_mixer_weights(double jitter, const at::Tensor& logit_SE, const at::Tensor& id_SK);
at::Tensor sparse_mixer_gradient(double jitter, const at::Tensor& logit_SE, const at::Tensor& id_SK,
                                 const at::Tensor& dweight_SK, const at::Tensor& dscore_SE = {});

// By row, the numbers of the experts that the row chose, in float (double for double). [S, K]
at::Tensor of_chosen(const at::Tensor& number_E, const at::Tensor& id_SK, const at::Tensor& like);
// Adds to each expert's entry the numbers of the rows that chose it.
void add_of_chosen(const at::Tensor& to_E, const at::Tensor& number_SK, const at::Tensor& id_SK);

// RMS norm of a router that takes other rows than its experts: x ÷ rms(x) · scale ÷ √width.
class RouterNorm {
 public:
  // `eps` 0: no norm. `dscale_H` undefined: the scale is frozen.
  RouterNorm(double eps, at::Tensor scale_H, at::Tensor dscale_H)
      : eps_(eps), scale_H_(std::move(scale_H)), dscale_H_(std::move(dscale_H)) {}
  bool any() const { return eps_ > 0; }
  at::Tensor forward(const at::Tensor& x_SH) const;
  // Returns the gradient of x and adds the scale's.
  at::Tensor backward(const at::Tensor& dy_SH, const at::Tensor& x_SH) const;

 private:
  at::Tensor weight_H() const;

  double eps_;
  at::Tensor scale_H_, dscale_H_;
};

}  // namespace sluice::layers
