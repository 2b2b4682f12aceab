// With s = assignments' weights, g and u gate and up of a row x, and a = s·act(g)·u:
//   y = Σ over a row's experts of a·W_down,   [g u] = x·W_gate_upᵀ.
// So da = dy·W_downᵀ, dx = Σ over the row's experts of [dg du]·W_gate_up, dW_down = aᵀ·dy and dW_gate_up =
// [dg du]ᵀ·x, the last two over an expert's rows.
#include "layers/grouped_experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "ops/linear.h"

namespace sluice::layers {

AssignedRows assigned_rows(const at::Tensor& id_TK, int64_t experts, int64_t own) {
  AssignedRows rows{ops::grouped_rows_of(id_TK, experts)};
  if (own == id_TK.numel()) return rows;
  for (at::Tensor* const of : {&rows.grouped.row_V, &rows.grouped.slot_V, &rows.grouped.group_V})
    *of = of->narrow(0, 0, own);
  return rows;
}

namespace {

// Gate and up of the assignments behind the first `begin`.
at::Tensor gate_up_behind(const ExpertWeights& weights, const AssignedRows& rows, const at::Tensor& x_VH,
                          int64_t begin) {
  const int64_t left = x_VH.size(0) - begin;
  const at::Tensor& end_G = rows.grouped.end_G;
  at::Tensor gate_up =
      ops::grouped_product(x_VH.narrow(0, begin, left), weights.gate_up.w_EAB.transpose(1, 2),
                           begin == 0 ? end_G : (end_G - begin).clamp_min_(0));
  if (weights.gate_up_bias_EG.defined()) {
    gate_up.add_(weights.gate_up_bias_EG.index_select(0, rows.grouped.group_V.narrow(0, begin, left)));
  }
  return gate_up;
}

}  // namespace

at::Tensor grouped_gate_up(const ExpertWeights& weights, const AssignedRows& rows, const at::Tensor& x_VH,
                           const at::Tensor& known_XG) {
  const int64_t all = x_VH.size(0), known = known_XG.defined() ? known_XG.size(0) : 0;
  if (known == 0) return gate_up_behind(weights, rows, x_VH, 0);
  if (known == all) return known_XG;
  const at::Tensor gate_up_VG = at::empty({all, known_XG.size(1)}, known_XG.options());
  gate_up_VG.narrow(0, 0, known).copy_(known_XG);
  gate_up_VG.narrow(0, known, all - known).copy_(gate_up_behind(weights, rows, x_VH, known));
  return gate_up_VG;
}

at::Tensor grouped_sums(const ExpertWeights& weights, const model::Gate& gate, const AssignedRows& rows,
                        const at::Tensor& gate_up_VG, const at::Tensor& weight_V1) {
  const at::Tensor a_VF = weighed_activation(gate, gate_up_VG, weight_V1);
  return rows.sums(ops::grouped_product(a_VF, weights.down.w_EAB, rows.grouped.end_G));
}

namespace {

// A product with each assignment's row of the identity sums the rows of each expert.
void add_bias_gradient(const at::Tensor& gradient_EG, const AssignedRows& rows, const at::Tensor& d_VG) {
  const at::Tensor expert_V1 = rows.grouped.group_V.to(at::kLong).unsqueeze(1);
  const at::Tensor visited_VE =
      at::zeros({d_VG.size(0), gradient_EG.size(0)}, d_VG.options()).scatter_(1, expert_V1, 1);
  ops::accumulate_weight_gradient(gradient_EG, visited_VE, d_VG);
}

}  // namespace

GroupedGradient grouped_backward(const ExpertWeights& weights, const ExpertWeights& gradients,
                                 const model::Gate& gate, const AssignedRows& rows, at::Tensor dy_VH,
                                 const at::Tensor& gate_up_VG, const at::Tensor& weight_V1) {
  const at::Tensor& end_G = rows.grouped.end_G;
  GroupedGradient to;
  at::Tensor da_VF = ops::grouped_product(dy_VH, weights.down.w_EAB.transpose(1, 2), end_G);
  dy_VH.reset();  // the largest tensor, unless the caller needs it
  to.a_VF = weighed_activation_backward(gate, std::move(da_VF), gate_up_VG, weight_V1, to.dweight_V1);
  to.dx_TH = rows.sums(ops::grouped_product(gate_up_VG, weights.gate_up.w_EAB, end_G));
  if (gradients.gate_up_bias_EG.defined()) add_bias_gradient(gradients.gate_up_bias_EG, rows, gate_up_VG);
  return to;
}

void add_grouped_gradients(const ExpertWeights& gradients, const AssignedRows& rows,
                           const GroupedGradient& from, const at::Tensor& dgate_up_VG, const at::Tensor& x_TH,
                           const at::Tensor& dy_TH) {
  const at::Tensor& end_G = rows.grouped.end_G;
  if (gradients.down.w_EAB.defined())
    ops::add_grouped_gradient(gradients.down.w_EAB, from.a_VF, rows.of(dy_TH), end_G);
  if (gradients.gate_up.w_EAB.defined())
    ops::add_grouped_gradient(gradients.gate_up.w_EAB, dgate_up_VG, rows.of(x_TH), end_G);
}

}  // namespace sluice::layers
