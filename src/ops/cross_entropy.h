// Softmax cross-entropy on logits whose vocabulary is cut over ranks, in three steps between which the
// caller exchanges three numbers a row:
//
//   statistics = row_statistics(logits, targets, begin)       // each shard
//   whole      = combine(statistics of all shards)            // each rank, the same
//   loss       = token_losses(whole)
//   gradient   = cross_entropy_gradient(logits, statistics, whole, targets, begin, dtype)
//
// R rows of a shard of V columns that begins at column `begin` of the vocabulary; targets are vocabulary
// ids, int64. Everything but the gradient is in the logits' type, which is float or double. On a GPU logits
// may be bfloat16, as a product rounds them, once; the statistics are then float.
//
// Between the two functions the logits' memory is theirs. A processor keeps exp(logit - the shard's row
// maximum) there, because exponentials cost it more than memory; a GPU leaves the logits and takes
// exponentials twice.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops {

// Result [R, 3]: the row's maximum, Σ exp(logit - maximum), and the target's logit, -infinity when the target
// lies in another shard.
at::Tensor row_statistics(const at::Tensor& logits_RV, const at::Tensor& target_R, int64_t begin);

// Statistics of the whole vocabulary from those of S shards, [S, R, 3] -> [R, 3]; shards are added in order.
at::Tensor combine(const at::Tensor& statistics_SR3);

// -log softmax(target) of each row, in double.
at::Tensor token_losses(const at::Tensor& whole_R3);

// The gradient of the sum of token losses with respect to the logits, softmax - [column is the target], in
// `dtype`. It takes the place of logits_RV where the types agree. `shard_R3` is row_statistics' result of
// these logits.
at::Tensor cross_entropy_gradient(const at::Tensor& logits_RV, const at::Tensor& shard_R3,
                                  const at::Tensor& whole_R3, const at::Tensor& target_R, int64_t begin,
                                  at::ScalarType dtype);

// Makes of that gradient, in place, softmax_R · softmax − factor_R · [column is the target]; what is
// undefined is one.
void scale_cross_entropy_gradient(const at::Tensor& dlogits_RV, const at::Tensor& softmax_R,
                                  const at::Tensor& factor_R, const at::Tensor& target_R, int64_t begin);

namespace aten {
at::Tensor row_statistics(const at::Tensor& logits_RV, const at::Tensor& target_R, int64_t begin);
at::Tensor cross_entropy_gradient(const at::Tensor& logits_RV, const at::Tensor& shard_R3,
                                  const at::Tensor& whole_R3, const at::Tensor& target_R, int64_t begin,
                                  at::ScalarType dtype);
}  // namespace aten

}  // namespace sluice::ops
