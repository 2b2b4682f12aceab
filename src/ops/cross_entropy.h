// Softmax cross-entropy on logits whose vocabulary is divided over ranks. The caller exchanges three numbers
// per row between its three steps.
//
//   statistics = row_statistics(logits, targets, begin)       // each shard
//   whole      = combine(statistics of all shards)            // each rank, the same
//   loss       = token_losses(whole)
//   gradient   = cross_entropy_gradient(logits, statistics, whole, targets, begin, dtype)
//
// R rows of a shard with V columns that begins at column `begin` of the vocabulary; targets are vocabulary
// ids, int64. All results but the gradient are in the logits' type, float or double. On a GPU, logits may be
// bfloat16, as a product rounds them; the statistics are then float.
//
// From row_statistics() to cross_entropy_gradient(), the logits' memory belongs to these functions. A CPU
// keeps exp(logit - the shard's row maximum) there, because exponentials cost it more than memory; a GPU
// keeps the logits and computes exponentials twice.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops {

// Result [R, 3]: the row's maximum, Σ exp(logit - maximum), and the target's logit, -infinity if the target
// lies in another shard.
at::Tensor row_statistics(const at::Tensor& logits_RV, const at::Tensor& target_R, int64_t begin);

// Merges the statistics of S shards, [S, R, 3], into the whole vocabulary's, [R, 3]; adds shards in order.
at::Tensor combine(const at::Tensor& statistics_SR3);

// -log softmax(target) of each row, in double.
at::Tensor token_losses(const at::Tensor& whole_R3);

// The gradient of the sum of token losses with respect to the logits, softmax - [column is the target], in
// `dtype`. It overwrites logits_RV if the types agree. `shard_R3` is row_statistics' result for these
// logits.
at::Tensor cross_entropy_gradient(const at::Tensor& logits_RV, const at::Tensor& shard_R3,
                                  const at::Tensor& whole_R3, const at::Tensor& target_R, int64_t begin,
                                  at::ScalarType dtype);

// Turns that gradient, in place, into softmax_R · softmax − factor_R · [column is the target]. An undefined
// softmax_R or factor_R means 1.
void scale_cross_entropy_gradient(const at::Tensor& dlogits_RV, const at::Tensor& softmax_R,
                                  const at::Tensor& factor_R, const at::Tensor& target_R, int64_t begin);

namespace aten {
at::Tensor row_statistics(const at::Tensor& logits_RV, const at::Tensor& target_R, int64_t begin);
at::Tensor cross_entropy_gradient(const at::Tensor& logits_RV, const at::Tensor& shard_R3,
                                  const at::Tensor& whole_R3, const at::Tensor& target_R, int64_t begin,
                                  at::ScalarType dtype);
}  // namespace aten

}  // namespace sluice::ops
