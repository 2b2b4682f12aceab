// Embedding lookup on a shard of the vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops {

// Row ids_T[i] - row_begin of weight_VH for each i; zeros if this shard has no such row (another rank's
// token, or -1 for an inert row). ids: int64 on the weight's device.
at::Tensor embedding_lookup(const at::Tensor& weight_VH, const at::Tensor& ids_T, int64_t row_begin);

// dweight_VH[ids_T[i] - row_begin] += dx_TH[i], in the order of i; rows of other shards are skipped.
void embedding_lookup_backward(const at::Tensor& dx_TH, const at::Tensor& ids_T, int64_t row_begin,
                               const at::Tensor& dweight_VH);

namespace aten {
at::Tensor embedding_lookup(const at::Tensor& weight_VH, const at::Tensor& ids_T, int64_t row_begin);
void embedding_lookup_backward(const at::Tensor& dx_TH, const at::Tensor& ids_T, int64_t row_begin,
                               const at::Tensor& dweight_VH);
}  // namespace aten

}  // namespace sluice::ops
