// Products of several groups of rows at once, such as a layer's experts. The groups' sizes stay on the
// device: no function here waits for a GPU whose libraries multiply groups (grouped_products_wait).
//
// Row names: T rows, K groups of a row, V = T·K assignments in the order of groups; G groups. A and B: the
// two widths of a matrix.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sluice::ops {

// Assignments in the order of groups, those of one group in the order of rows. All on the device of the ids.
struct GroupedRows {
  at::Tensor row_V;     // int64: the row
  at::Tensor slot_V;    // int64: the index among the T·K ids
  at::Tensor group_V;   // int32, ascending
  at::Tensor end_G;     // int32: where in V each group's assignments end
  at::Tensor place_TK;  // int64: where in V a row's assignments are, ascending

  bool defined() const { return row_V.defined(); }
};
// For ids [T, K], int32, not negative. Assignments to groups behind the last one are the last of V and belong
// to no group.
GroupedRows grouped_rows_of(const at::Tensor& id_TK, int64_t groups);
// The number of each id in [0, count), int64. REQUIRES: all ids are in this range.
at::Tensor counts_of(const at::Tensor& ids, int64_t count);

// x·w group by group: x [V, A], w [G, A, B], which may be a transposed view -> [V, B]. Rows that belong to no
// group have no defined result.
at::Tensor grouped_product(const at::Tensor& x_VA, const at::Tensor& w_GAB, const at::Tensor& end_G);

// gradient += aᵀ·b group by group, in place; gradient [G, A, B] in float (double). GPUs that multiply groups
// round each group's product to bfloat16 before it is added.
void add_grouped_gradient(const at::Tensor& gradient_GAB, const at::Tensor& a_VA, const at::Tensor& b_VB,
                          const at::Tensor& end_G);

// For each row the sum of its assignments' rows, in the order of `place_TK`. Places behind the rows of y,
// which belong to no group, are left out. [T, B] REQUIRES: all of y is finite.
at::Tensor sums_by_row(const at::Tensor& y_VB, const at::Tensor& place_TK);

// Whether the products of these operands read the groups' sizes on the host: on GPUs below sm_90, beyond
// sm_10x, and for types, widths or addresses that the libraries do not take. Then products run group by
// group.
bool grouped_products_wait(const at::Tensor& x_VA, const at::Tensor& w_GAB);

namespace aten {
// By one operator of ATen's. REQUIRES: float or bfloat16; rows and addresses of whole 16 bytes.
at::Tensor grouped_product(const at::Tensor& x_VA, const at::Tensor& w_GAB, const at::Tensor& end_G);
// `most_bytes` bounds the rounded products that are in memory at once.
void add_grouped_gradient(const at::Tensor& gradient_GAB, const at::Tensor& a_VA, const at::Tensor& b_VB,
                          const at::Tensor& end_G, int64_t most_bytes);
}  // namespace aten

}  // namespace sluice::ops
