// Token-to-expert assignment: choosing experts for rows, and moving rows to experts and back.
//
// Row names: T rows, K experts that each visits, V = T·K assignments, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sluice::ops {

// For each row of scores, the columns of the K highest scores, int32 [T, K], highest first; equal scores from
// left to right. REQUIRES: 1 <= k <= E.
at::Tensor highest(const at::Tensor& score_TE, int64_t k);

// Assignments in the order of experts; those of one expert in the order of rows.
struct ExpertAssignments {
  at::Tensor row_V;             // int64, on the ids' device: the row
  at::Tensor slot_V;            // int64: the index among the T·K ids
  std::vector<int64_t> begins;  // E + 1 numbers: where in V each expert's assignments begin
};
// Assignments for ids [T, K], int32, each in [0, experts). Waits for a GPU: the host needs the counts.
ExpertAssignments expert_assignments_of(const at::Tensor& id_TK, int64_t experts);

// to_TH[row_N[i]] += from_NH[i]. REQUIRES: no row occurs twice, so that sums don't depend on an order.
void add_to_rows(const at::Tensor& to_TH, const at::Tensor& row_N, const at::Tensor& from_NH);

namespace aten {
at::Tensor highest(const at::Tensor& score_TE, int64_t k);
ExpertAssignments expert_assignments_of(const at::Tensor& id_TK, int64_t experts);
void add_to_rows(const at::Tensor& to_TH, const at::Tensor& row_N, const at::Tensor& from_NH);
}  // namespace aten

}  // namespace sluice::ops
