// S: rows of this rank's shard, M: those that each rank gives (Targets), G: M of all ranks, R: all rows with
// a target, H: hidden, K: numbers of a row.
#include "layers/number_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "layers/row_norm.h"
#include "model/layer.h"
#include "ops/linear.h"

namespace sluice::layers {
namespace {

NormVectors final_vectors(const HeadParameters& parameters) {
  return {parameters.final_norm_H, parameters.final_norm_bias_H};
}

at::Tensor numbers_of(const HeadParameters& weights, const at::Tensor& y_MH) {
  if (!weights.output_VH.defined()) return y_MH.to(at::kDouble);
  at::Tensor numbers_MK = ops::wide_times_transposed(y_MH, weights.output_VH).to(at::kDouble);
  if (weights.bias_K.defined()) numbers_MK.add_(weights.bias_K.to(at::kDouble));
  return numbers_MK;
}

at::Tensor of_all_rows(const LayerContext& context, const at::Tensor& numbers_MK, const Targets& targets) {
  return context.parallel.all_gather_rows(numbers_MK).index_select(0, targets.place_R);
}

// The rows of `values_RK` that this rank's own rows have.
at::Tensor of_own_rows(const LayerContext& context, const at::Tensor& values_RK, const Targets& targets) {
  const int64_t given = targets.row_M.size(0);
  const at::Tensor values_GK =
      at::zeros({given * context.parallel.tp, values_RK.size(1)}, values_RK.options());
  values_GK.index_copy_(0, targets.place_R, values_RK);
  return values_GK.narrow(0, given * context.parallel.t, targets.own);
}

// Adds to the matrix' and the bias' gradients, and returns the normed rows'.
at::Tensor backward_of_numbers(const HeadParameters& weights, const at::Tensor& dnumbers_MK,
                               const at::Tensor& y_MH, const HeadParameters& gradients) {
  const at::Tensor narrow_MK = dnumbers_MK.to(y_MH.scalar_type());
  if (!weights.output_VH.defined()) return narrow_MK;
  if (gradients.output_VH.defined()) ops::accumulate_weight_gradient(gradients.output_VH, narrow_MK, y_MH);
  if (gradients.bias_K.defined())
    gradients.bias_K.add_(dnumbers_MK.sum(0).to(gradients.bias_K.scalar_type()));
  return ops::times(narrow_MK, weights.output_VH);
}

}  // namespace

at::Tensor head_numbers(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x_SH,
                        const Targets& targets) {
  const model::Weight& output = weights.kind->output;
  if (targets.place_R.numel() == 0) {
    return at::zeros({0, output.rows() > 0 ? output.rows() : output.columns},
                     x_SH.options().dtype(at::kDouble));
  }
  const at::Tensor y_MH =
      norm_rows(weights.kind->norm, x_SH.index_select(0, targets.row_M), final_vectors(weights)).y_TH;
  return of_all_rows(context, numbers_of(weights, y_MH), targets);
}

HeadResult number_head_forward_backward(const LayerContext& context, const HeadParameters& weights,
                                        const at::Tensor& x_SH, const Targets& targets,
                                        const HeadParameters& gradients) {
  SLUICE_ASSERT(context.number_loss != nullptr, "a head of numbers without a loss");
  const at::Tensor sums = at::zeros({1 + context.number_loss->notes()}, x_SH.options().dtype(at::kDouble));
  const at::Tensor dx_SH = at::zeros_like(x_SH);
  if (targets.place_R.numel() == 0) return {sums, dx_SH};
  const at::Tensor own_M = targets.row_M.narrow(0, 0, targets.own);
  ops::RmsNorm norm =
      norm_rows(weights.kind->norm, x_SH.index_select(0, targets.row_M), final_vectors(weights));
  const at::Tensor numbers_RK = of_all_rows(context, numbers_of(weights, norm.y_TH), targets);
  const NumberLosses losses = context.number_loss->of(numbers_RK, targets.target_R, targets.given_RF);
  sums[0].copy_(losses.loss_R.sum());
  if (losses.notes_RN.defined()) sums.narrow(0, 1, losses.notes_RN.size(1)).copy_(losses.notes_RN.sum(0));
  if (targets.own == 0) return {sums, dx_SH};
  const at::Tensor dy_MH = backward_of_numbers(weights, of_own_rows(context, losses.gradient_RK, targets),
                                               norm.y_TH.narrow(0, 0, targets.own), gradients);
  norm.y_TH.reset();
  const at::Tensor dx_MH =
      norm_rows_backward(weights.kind->norm, dy_MH, x_SH.index_select(0, own_M), final_vectors(weights),
                         norm.inverse_rms_T.narrow(0, 0, targets.own),
                         /*residual_TH=*/{}, final_vectors(gradients))
          .dx_TH;
  dx_SH.index_copy_(0, own_M, dx_MH);
  return {sums, dx_SH};
}

}  // namespace sluice::layers
