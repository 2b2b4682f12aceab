#include "layers/expert.h"

#include <ATen/TensorOperators.h>

#include "layers/gated.h"
#include "ops/linear.h"
#include "ops/simd.h"

namespace sluice::layers {

Matrix ExpertMatrices::of(int64_t expert) const {
  const auto part = [expert](const at::Tensor& all) { return all.defined() ? all[expert] : all; };
  Matrix matrix{.w_AB = part(w_EAB), .adapters = {}};
  if (adapted) matrix.adapters.push_back({part(left_EAK), part(right_EKB), /*first_row=*/0, factor});
  return matrix;
}

Matrix ExpertMatrices::adapters_of(int64_t expert) const {
  Matrix matrix = of(expert);
  matrix.w_AB.reset();
  return matrix;
}

void add_gradients(const Matrix& matrix, const Matrix& gradient, const at::Tensor& a_NA,
                   const at::Tensor& b_NB) {
  const at::Tensor a = a_NA.contiguous(), b = b_NB.contiguous();
  accumulate_gradient(gradient, adapter_rows(matrix, gradient, a, b), a, b);
}

Matrix exact_matrix(const OperationShards& shards, std::string_view role) {
  Matrix matrix = shards.matrix(role);
  matrix.low_precision = {.rows = matrix.low_precision.rows};
  return matrix;
}

ExpertMatrices expert_matrices(const OperationShards& shards, std::string_view role, int64_t own) {
  const auto by_expert = [&](const at::Tensor& all) {
    return all.defined() ? all.view({own, all.size(0) / own, all.size(1)}) : all;
  };
  const Matrix all = shards.matrix(role);
  ExpertMatrices matrices{.w_EAB = by_expert(all.w_AB), .rows = all.low_precision.rows};
  if (all.adapters.empty()) return matrices;
  const Adapter& adapter = all.adapters.front();
  matrices.left_EAK = by_expert(adapter.left_NK);
  matrices.right_EKB = by_expert(adapter.right_KB);
  matrices.adapted = true;
  matrices.factor = adapter.factor;
  return matrices;
}

at::Tensor Expert::rows_of(const at::Tensor& x_TH) const {
  return row_N.defined() ? x_TH.index_select(0, row_N) : x_TH;
}

void Expert::add_to_rows(const at::Tensor& to_TH, const at::Tensor& from_NH) const {
  if (row_N.defined()) return ops::add_to_rows(to_TH, row_N, from_NH);
  at::Tensor target_TH = to_TH;
  target_TH.add_(from_NH);
}

void Expert::choose(at::Tensor& narrow_NK) const {
  if (adapter_rows == nullptr || !adapter_rows->chosen_TK.defined()) return;
  const at::Tensor& chosen_TK = adapter_rows->chosen_TK;
  narrow_NK.mul_(row_N.defined() ? chosen_TK.index_select(0, row_N) : chosen_TK);
}

void Expert::gate_up_into(const at::Tensor& gate_up_NG, const at::Tensor& x_NH) const {
  ops::times_transposed_into(gate_up_NG, x_NH, gate_up.w_AB);
  at::Tensor biased_NG = gate_up_NG;
  for (const Adapter& adapter : gate_up.adapters) {
    at::Tensor narrow_NK = ops::times_transposed(x_NH, adapter.right_KB);
    choose(narrow_NK);
    biased_NG.addmm_(narrow_NK, adapter.left_NK.t(), 1, adapter.factor);
  }
  if (gate_up_bias_G.defined()) biased_NG.add_(gate_up_bias_G);
}

at::Tensor weighed_activation(const model::Gate& gate, const at::Tensor& gate_up_NG,
                              const at::Tensor& weight_N1) {
  const bool weighs_input = gate.weighs_input && weight_N1.defined();
  at::Tensor a_NF = activated(gate, weighs_input ? gate_up_NG * weight_N1 : gate_up_NG);
  if (weight_N1.defined() && !weighs_input) a_NF.mul_(weight_N1);
  return a_NF;
}

at::Tensor Expert::result(const model::Gate& gate, const at::Tensor& gate_up_NG,
                          const at::Tensor& weight_N1) const {
  at::Tensor a_NF = weighed_activation(gate, gate_up_NG, weight_N1);
  if (down.scales != nullptr) return times(a_NF, down);  // of a shared expert, which has all rows
  at::Tensor y_NH = ops::times(a_NF, down.w_AB);
  for (const Adapter& adapter : down.adapters) {
    at::Tensor narrow_NK = ops::times(a_NF, adapter.left_NK);
    choose(narrow_NK);
    y_NH.addmm_(narrow_NK, adapter.right_KB, 1, adapter.factor);
  }
  return y_NH;
}

at::Tensor weighed_activation_backward(const model::Gate& gate, at::Tensor da_NF,
                                       const at::Tensor& gate_up_NG, const at::Tensor& weight_N1,
                                       at::Tensor& dweight_N1) {
  if (!weight_N1.defined()) return activated_backward(gate, da_NF, gate_up_NG);
  if (gate.weighs_input) {  // the in-product is linear: weights multiply gate and up
    const at::Tensor weighed_NG = gate_up_NG * weight_N1;
    at::Tensor a_NF = activated_backward(gate, da_NF, weighed_NG);
    dweight_N1 = (weighed_NG * gate_up_NG).sum(1, /*keepdim=*/true, ops::accumulator_type(a_NF));
    gate_up_NG.copy_(weighed_NG * weight_N1);
    return a_NF;
  }
  at::Tensor a_NF = activated_backward(gate, da_NF * weight_N1, gate_up_NG);
  dweight_N1 = da_NF.mul_(a_NF).sum(1, /*keepdim=*/true, ops::accumulator_type(a_NF));
  a_NF.mul_(weight_N1);
  return a_NF;
}

at::Tensor Expert::backward_of_gate_up(const model::Gate& gate, const at::Tensor& dy_NH,
                                       const at::Tensor& gate_up_NG, const at::Tensor& weight_N1,
                                       at::Tensor& dweight_N1) const {
  return weighed_activation_backward(gate, times_transposed(dy_NH, down), gate_up_NG, weight_N1, dweight_N1);
}

at::Tensor Expert::backward(const model::Gate& gate, const at::Tensor& dy_NH, const at::Tensor& gate_up_NG,
                            const at::Tensor& weight_N1, at::Tensor& dweight_N1, at::Tensor& a_NF) const {
  a_NF = backward_of_gate_up(gate, dy_NH, gate_up_NG, weight_N1, dweight_N1);
  return times(gate_up_NG, gate_up);
}

void add_column_sums(const at::Tensor& to_X, const at::Tensor& from_NX) {
  at::Tensor target_X = to_X;
  target_X.add_(from_NX.sum(0, /*keepdim=*/false, to_X.scalar_type()));
}

}  // namespace sluice::layers
