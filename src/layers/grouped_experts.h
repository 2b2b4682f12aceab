// All of a rank's experts at once: each product is one over groups of rows (ops/grouped_product.h), so that
// the host launches nothing expert by expert and reads no counts. Computes what Expert (expert.h) does for
// each.
//
// Row names: T rows, V their assignments in the order of experts. Widths: H hidden, F this rank's part of an
// inner width, G = 2F, or F without a gate.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "layers/expert.h"
#include "model/layer.h"
#include "ops/grouped_product.h"

namespace sluice::layers {

// Experts with adapters are computed one by one: their products are narrow.
inline bool can_be_grouped(const ExpertWeights& weights) {
  return !weights.gate_up.adapted && !weights.down.adapted;
}

// A rank's assignments.
struct AssignedRows {
  ops::GroupedRows grouped;

  at::Tensor of(const at::Tensor& x_TH) const { return x_TH.index_select(0, grouped.row_V); }
  at::Tensor sums(const at::Tensor& y_VH) const { return ops::sums_by_row(y_VH, grouped.place_TK); }
};
// For ids [T, K], of which `own` are of this rank's experts, the first ones. Others have no part in V.
AssignedRows assigned_rows(const at::Tensor& id_TK, int64_t experts, int64_t own);

// Gate and up of the assignments' rows; the first of them if `known_XG` has them already.
at::Tensor grouped_gate_up(const ExpertWeights& weights, const AssignedRows& rows, const at::Tensor& x_VH,
                           const at::Tensor& known_XG = {});
// By row the sum of its experts' results. [T, H]
at::Tensor grouped_sums(const ExpertWeights& weights, const model::Gate& gate, const AssignedRows& rows,
                        const at::Tensor& gate_up_VG, const at::Tensor& weight_V1);

struct GroupedGradient {
  at::Tensor dx_TH, dweight_V1;
  at::Tensor a_VF;  // the input of the down product, for its weight gradient
};
// `dy_VH`: the gradients of the assignments' results. Gate and up become their gradients; those of their
// biases are added to `gradients`.
GroupedGradient grouped_backward(const ExpertWeights& weights, const ExpertWeights& gradients,
                                 const model::Gate& gate, const AssignedRows& rows, at::Tensor dy_VH,
                                 const at::Tensor& gate_up_VG, const at::Tensor& weight_V1);
// Adds to the trained matrices' gradients. `x_TH`: the rows, `dy_TH`: the gradients of their sums.
void add_grouped_gradients(const ExpertWeights& gradients, const AssignedRows& rows,
                           const GroupedGradient& from, const at::Tensor& dgate_up_VG, const at::Tensor& x_TH,
                           const at::Tensor& dy_TH);

}  // namespace sluice::layers
