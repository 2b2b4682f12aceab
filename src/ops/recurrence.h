// Linear recurrences over packed sequences, forward and backward, for layers of linear attention. A head's
// state S [K, D] changes from token to token as
//   S_t = (I − δ·β_t·k_t·k_tᵀ)·diag(α_t)·S_{t−1} + β_t·k_t·v_tᵀ,    o_t = S_tᵀ·q_t.
// Here δ is 1 or 0, and decays α are by head or by key channel. Published layers are special cases: GLA (δ =
// 0, by channel, β = 1; Yang et al., 2023), Mamba-2 (δ = 0, by head, β the time step; Dao and Gu, 2024),
// Gated DeltaNet (δ = 1, by head; Yang et al., 2024), KDA (δ = 1, by channel; Kimi Linear, 2025).
//
// Rows are computed by chunks. With u_t = β_t·(v_t − δ·(α_t∘S_{t−1})ᵀ·k_t) a state changes by sums, S_t =
// diag(α_t)·S_{t−1} + k_t·u_tᵀ. A chunk's u solve a unit lower triangular system (the WY form of Yang et al.,
// "Parallelizing Linear Transformers with the Delta Rule", 2024). Products within chunks are computed for all
// chunks at once; then states pass from chunk to chunk, all sequences side by side. Decay factors are exp of
// differences of log decays, never above zero, so nothing overflows.
//
// Row and width names: T rows of a micro-batch, P pieces of sequences, N chunks, C places of a chunk; G key
// heads, H value heads, of which H ÷ G neighbours share a key head; K and D a head's widths.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "ops/recurrence_chunks.h"
#include "ops/recurrence_values.h"

namespace sluice::ops {

class HeadsRecurrence;

// The recurrence of one micro-batch. States are in float (double for double); an undefined state is zero.
// Inputs are not changed. Heads are processed together as far as memory stays within that of all heads with
// chunks of kUsualChunk rows; for many shorter sequences, each with its own state, these are fewer heads.
class Recurrence {
 public:
  Recurrence(RecurrenceInput input, const RecurrenceChunks& chunks);

  // Returns o [T, H, D] of pieces that begin with these states, in float (double for double). `end_PHKD`:
  // null, or receives the final states.
  at::Tensor forward(const at::Tensor& begin_PHKD, at::Tensor* end_PHKD = nullptr) const;
  RecurrencePassage passage() const;
  // `added` of the map from the end's gradient to the begin's: dbegin = transitionᵀ·dend + added.
  at::Tensor begin_gradient(const at::Tensor& dout_THD) const;
  // `dend_PHKD`: gradient of the pieces' final states; undefined: zero.
  RecurrenceGradient backward(const at::Tensor& dout_THD, const at::Tensor& begin_PHKD,
                              const at::Tensor& dend_PHKD) const;

 private:
  // Calls visit(recurrence of some heads, interval of value heads) for all heads, part by part.
  template <typename Visit>
  void for_each_part(Visit visit) const;

  RecurrenceInput input_;
  const RecurrenceChunks& chunks_;
  int64_t at_once_;                               // value heads
  std::shared_ptr<const HeadsRecurrence> whole_;  // set if at_once_ covers all heads
};

}  // namespace sluice::ops
