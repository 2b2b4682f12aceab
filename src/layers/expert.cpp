#include "layers/expert.h"

#include <ATen/TensorOperators.h>

#include "layers/gated.h"
#include "ops/linear.h"
#include "ops/simd.h"

namespace sluice::layers {

at::Tensor Expert::rows_of(const at::Tensor& x_TH) const {
  return row_N.defined() ? x_TH.index_select(0, row_N) : x_TH;
}

void Expert::add_to_rows(const at::Tensor& to_TH, const at::Tensor& from_NH) const {
  if (row_N.defined()) return ops::add_to_rows(to_TH, row_N, from_NH);
  at::Tensor target_TH = to_TH;
  target_TH.add_(from_NH);
}

void Expert::gate_up_into(const at::Tensor& gate_up_NG, const at::Tensor& x_NH) const {
  ops::times_transposed_into(gate_up_NG, x_NH, gate_up_GH);
  at::Tensor biased_NG = gate_up_NG;
  if (gate_up_bias_G.defined()) biased_NG.add_(gate_up_bias_G);
}

at::Tensor Expert::result(const model::Gate& gate, const at::Tensor& gate_up_NG,
                          const at::Tensor& weight_N1) const {
  at::Tensor a_NF = gated(gate, gate_up_NG);
  if (weight_N1.defined()) a_NF.mul_(weight_N1);
  return ops::times(a_NF, down_FH);
}

at::Tensor Expert::backward_of_gate_up(const model::Gate& gate, const at::Tensor& dy_NH,
                                       const at::Tensor& gate_up_NG, const at::Tensor& weight_N1,
                                       at::Tensor& dweight_N1) const {
  at::Tensor da_NF = ops::times_transposed(dy_NH, down_FH);
  if (!weight_N1.defined()) return gated_backward(gate, da_NF, gate_up_NG);
  at::Tensor a_NF = gated_backward(gate, da_NF * weight_N1, gate_up_NG);
  dweight_N1 = da_NF.mul_(a_NF).sum(1, /*keepdim=*/true, ops::accumulator_type(a_NF));
  a_NF.mul_(weight_N1);
  return a_NF;
}

at::Tensor Expert::backward(const model::Gate& gate, const at::Tensor& dy_NH, const at::Tensor& gate_up_NG,
                            const at::Tensor& weight_N1, at::Tensor& dweight_N1, at::Tensor& a_NF) const {
  a_NF = backward_of_gate_up(gate, dy_NH, gate_up_NG, weight_N1, dweight_N1);
  return ops::times(gate_up_NG, gate_up_GH);
}

void add_column_sums(const at::Tensor& to_X, const at::Tensor& from_NX) {
  at::Tensor target_X = to_X;
  target_X.add_(from_NX.sum(0, /*keepdim=*/false, to_X.scalar_type()));
}

}  // namespace sluice::layers
