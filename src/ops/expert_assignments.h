// Which rows visit which experts: choosing them, and going there and back.
//
// Row names: T rows, K experts that each visits, V = T·K visits, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sluice::ops {

// Of each row of scores the columns with the K highest, int32 [T, K], highest first; of equal ones the
// leftmost first. REQUIRES: 1 <= k <= E.
at::Tensor highest(const at::Tensor& score_TE, int64_t k);

// Visits in the order of experts, and of one expert in that of rows.
struct ExpertAssignments {
  at::Tensor row_V;             // int64, on the ids' device: who comes
  at::Tensor slot_V;            // int64: which of the T·K ids it is
  std::vector<int64_t> begins;  // by expert, E + 1 of them: where in V its visits begin
};
// Of ids [T, K], int32, each in [0, experts). Waits for a GPU, whose counts the host must know.
ExpertAssignments expert_assignments_of(const at::Tensor& id_TK, int64_t experts);

// to_TH[row_N[i]] += from_NH[i]. REQUIRES: no row twice, so that sums don't depend on an order.
void add_to_rows(const at::Tensor& to_TH, const at::Tensor& row_N, const at::Tensor& from_NH);

namespace aten {
at::Tensor highest(const at::Tensor& score_TE, int64_t k);
ExpertAssignments expert_assignments_of(const at::Tensor& id_TK, int64_t experts);
void add_to_rows(const at::Tensor& to_TH, const at::Tensor& row_N, const at::Tensor& from_NH);
}  // namespace aten

}  // namespace sluice::ops
