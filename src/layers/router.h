// How rows choose their experts, and how they weigh what those give them (model::Experts).
//
// Row names: S rows of this TP rank's shard; E experts, K of them a row.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "model/shape.h"

namespace sluice::layers {

// A softmax over all experts of rows·routerᵀ and their biases, which may be undefined, or of each the
// sigmoid, in float (double for double). [S, E]
at::Tensor router_scores(const model::Experts& experts, const at::Tensor& normed_SH,
                         const at::Tensor& router_EH, const at::Tensor& bias_E);

// Whom rows visit: of the groups of experts whose two highest scores have the highest sums those with the
// highest scores; corrected ones, where `correction_E` is defined. Of equal ones the leftmost. int32 [S, K]
at::Tensor chosen_experts(const model::Experts& experts, const at::Tensor& score_SE,
                          const at::Tensor& correction_E);

// What the chosen experts' outputs are multiplied with; `floor` is added to their sum. [S, K]
at::Tensor route_weights(const model::Experts& experts, double floor, const at::Tensor& score_SE,
                         const at::Tensor& id_SK);

// The gradient of rows·routerᵀ from that of the weights, and from one of the scores' shares of their sum,
// which may be undefined; which experts are chosen has none.
at::Tensor router_gradient(const model::Experts& experts, double floor, const at::Tensor& score_SE,
                           const at::Tensor& id_SK, const at::Tensor& dweight_SK,
                           const at::Tensor& dscore_SE = {});

// Rows·routerᵀ themselves: the scores of SparseMixer (model::RoutedExperts::sparse_jitter).
at::Tensor router_logits(const at::Tensor& normed_SH, const at::Tensor& router_EH);
// The same two of SparseMixer. Which logits are near enough has no gradient.
at::Tensor sparse_mixer_weights(double jitter, const at::Tensor& logit_SE, const at::Tensor& id_SK);
at::Tensor sparse_mixer_gradient(double jitter, const at::Tensor& logit_SE, const at::Tensor& id_SK,
                                 const at::Tensor& dweight_SK, const at::Tensor& dscore_SE = {});

// The numbers of the experts that rows chose, in float (double for double). [S, K]
at::Tensor of_chosen(const at::Tensor& number_E, const at::Tensor& id_SK, const at::Tensor& like);
// Adds to each expert's number those of the rows that chose it.
void add_of_chosen(const at::Tensor& to_E, const at::Tensor& number_SK, const at::Tensor& id_SK);

// The norm of a router that takes other rows than its experts: x ÷ rms(x) · scale ÷ √width.
class RouterNorm {
 public:
  // `eps` 0: there is none. `dscale_H` undefined: the scale is frozen.
  RouterNorm(double eps, at::Tensor scale_H, at::Tensor dscale_H)
      : eps_(eps), scale_H_(std::move(scale_H)), dscale_H_(std::move(dscale_H)) {}
  bool any() const { return eps_ > 0; }
  at::Tensor forward(const at::Tensor& x_SH) const;
  // The gradient of x; the scale's is added.
  at::Tensor backward(const at::Tensor& dy_SH, const at::Tensor& x_SH) const;

 private:
  at::Tensor weight_H() const;

  double eps_;
  at::Tensor scale_H_, dscale_H_;
};

}  // namespace sluice::layers
