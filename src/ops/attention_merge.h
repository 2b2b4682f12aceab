// Attention over keys that come one after the other: the result over two sets of keys from those over each.
#pragma once

#include "ops/attention_input.h"

namespace sluice::ops {

// Merges the results for two disjoint sets of keys into `seen`: out and lse over both sets. seen.out_TND is
// in lse's type. REQUIRES: every query has seen a key of `more`.
void merge(const AttentionResult& seen, const AttentionResult& more);

// The result of queries [T, N, D] without any key: out 0 and lse −inf, in the type in which both accumulate.
AttentionResult nothing_seen(const at::Tensor& q_TND);

namespace aten {
void merge(const AttentionResult& seen, const AttentionResult& more);
}  // namespace aten

}  // namespace sluice::ops
