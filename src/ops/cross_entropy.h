// Softmax cross-entropy on logits whose vocabulary is cut over ranks, in three steps between which the
// caller exchanges three numbers a row:
//
//   statistics = exponentiate_rows(logits, targets, begin)    // each shard: logits become exp(l - max)
//   whole      = combine(statistics of all shards)            // each rank, the same
//   loss       = token_losses(whole)
//   cross_entropy_gradient(logits, statistics, whole, targets, begin)
//
// R rows of a shard of V columns that begins at column `begin` of the vocabulary; targets are vocabulary
// ids, int64. Everything is in the logits' type, which is float or double.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops {

// Overwrites logits_RV with exp(logit - row maximum). Result [R, 3]: the row's maximum, the sum of those
// exponentials, and the target's logit, -infinity when the target lies in another shard.
at::Tensor exponentiate_rows(const at::Tensor& logits_RV, const at::Tensor& target_R, int64_t begin);

// Statistics of the whole vocabulary from those of S shards, [S, R, 3] -> [R, 3]; shards are added in order.
at::Tensor combine(const at::Tensor& statistics_SR3);

// -log softmax(target) of each row, in double.
at::Tensor token_losses(const at::Tensor& whole_R3);

// Overwrites exponentials_RV (from exponentiate_rows, with its `shard_R3`) with the gradient of the sum of
// token losses with respect to the logits: softmax - [column is the target].
void cross_entropy_gradient(const at::Tensor& exponentials_RV, const at::Tensor& shard_R3,
                            const at::Tensor& whole_R3, const at::Tensor& target_R, int64_t begin);

namespace aten {
at::Tensor exponentiate_rows(const at::Tensor& logits_RV, const at::Tensor& target_R, int64_t begin);
void cross_entropy_gradient(const at::Tensor& exponentials_RV, const at::Tensor& shard_R3,
                            const at::Tensor& whole_R3, const at::Tensor& target_R, int64_t begin);
}  // namespace aten

}  // namespace sluice::ops
