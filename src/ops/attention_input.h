// Inputs and results of attention (ops/attention.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "ops/sequence_groups.h"

namespace sluice::ops {

// The rows of packed sequences: sequence i has rows [begins[i], begins[i+1]). Rows from begins.back() on
// belong to no sequence.
struct PackedSequences {
  std::vector<int64_t> begins;  // size: sequences + 1, ascending, first 0; no empty sequence
  int64_t longest = 0;
  // For GPU kernels: begins as int32, and the sequences in groups with the words of their table.
  at::Tensor begins_device;
  SequenceTable table;
  at::Tensor table_device;
};
// REQUIRES: every length > 0.
PackedSequences packed_sequences(const std::vector<int64_t>& lengths, const at::Device& device);

// T rows, N query heads, K key/value heads (N a multiple of K), D dimensions. Query and key tensors may be
// strided views whose last dimension is dense.
struct AttentionInput {
  at::Tensor q_TND;
  at::Tensor k_TKD;
  at::Tensor v_TKD;
  double scale = 1.0;  // scales the scores, before the softmax
  // Number of tokens that a token sees up to and including itself; 0: all. Positions count within the
  // sequence, or as AttentionBlock says.
  int64_t window = 0;
  double cap = 0;      // scaled scores s become cap·tanh(s/cap) before the softmax; 0: no cap
  bool causal = true;  // false: a token sees as far behind itself as before itself
  // Columns of values from here on are zero, and so are those of results and of their gradients, as latent
  // attention pads them (keys of 192, values of 128); 0: none. A library may leave them out.
  int64_t value_dimensions = 0;

  // The same queries with keys from the first part of kv's second dimension, and values from the rest.
  AttentionInput on(const at::Tensor& kv_TJD) const;
};

struct AttentionResult {
  at::Tensor out_TND;  // dense; rows of no sequence are zero
  at::Tensor lse_NT;   // log Σ exp(scores), float (double for double), for backward and ring merges
  at::Tensor rng;      // CUDA kernels' dropout state; unused, but backward requires it
};
struct AttentionGradient {
  at::Tensor dq_TND;
  at::Tensor dk_TKD;
  at::Tensor dv_TKD;
};

// A part of attention whose keys come from elsewhere: every query sees every key, except keys that a window
// hides. Keys may stand behind queries if attention is not causal.
struct AttentionBlock {
  base::Interval queries;  // rows of q, out and lse
  base::Interval keys;     // rows of k and v, which may have other rows than q
  int64_t ahead = 0;       // the first query's position minus the first key's; used with a window only
  bool operator==(const AttentionBlock&) const = default;
};

}  // namespace sluice::ops
