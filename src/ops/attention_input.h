// What attention takes and gives (ops/attention.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "ops/sequence_groups.h"

namespace sluice::ops {

// Where packed sequences lie: sequence i has rows [begins[i], begins[i+1]). Rows from begins.back() on belong
// to none.
struct PackedSequences {
  std::vector<int64_t> begins;  // size: sequences + 1, ascending, first 0; no empty sequence
  int64_t longest = 0;
  // For kernels of GPUs: begins as int32, and sequences in groups with the words of their table.
  at::Tensor begins_device;
  SequenceTable table;
  at::Tensor table_device;
};
// T rows, N query heads, K key/value heads (N a multiple of K), D dimensions. Query and key tensors may be
// strided views whose last dimension is dense.
struct AttentionInput {
  at::Tensor q_TND;
  at::Tensor k_TKD;
  at::Tensor v_TKD;
  double scale = 1.0;  // of the scores, before the softmax
  // What a token sees of those up to its own, itself included; 0: all. It has a position in its sequence, or
  // as AttentionBlock says.
  int64_t window = 0;
  double cap = 0;      // scores s, scaled, become cap·tanh(s/cap) before the softmax; 0: they stay
  bool causal = true;  // else a token sees as far behind itself as before itself

  // The same queries on the keys that kv's second dimension begins with, and on the values behind them.
  AttentionInput on(const at::Tensor& kv_TJD) const;
};

struct AttentionResult {
  at::Tensor out_TND;  // dense; rows of no sequence are zero
  at::Tensor lse_NT;   // log Σ exp(scores), float (double for double): what backward and ring merges need
  at::Tensor rng;      // CUDA kernels' dropout state; unused, but backward asks for it
};
struct AttentionGradient {
  at::Tensor dq_TND;
  at::Tensor dk_TKD;
  at::Tensor dv_TKD;
};

// A part of attention whose keys come from elsewhere: every one of the queries sees every one of the keys,
// but for those that a window hides. Keys may stand behind queries where attention is not causal.
struct AttentionBlock {
  base::Interval queries;  // rows of q, out and lse
  base::Interval keys;     // rows of k and v, which may have other rows than q
  int64_t ahead = 0;       // of the first key's position is the first query's; counts with a window only
  bool operator==(const AttentionBlock&) const = default;
};

}  // namespace sluice::ops
