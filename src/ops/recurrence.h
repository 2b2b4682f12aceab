// Linear recurrences over packed sequences, forward and backward: what layers of linear attention compute.
// A head's state S [K, D] goes from token to token as
//   S_t = (I − δ·β_t·k_t·k_tᵀ)·diag(α_t)·S_{t−1} + β_t·k_t·v_tᵀ,    o_t = S_tᵀ·q_t,
// with δ 1 or 0 and decays α by head or by key channel. Published layers are values of it: GLA (δ = 0, by
// channel, β = 1; Yang et al., 2023), Mamba-2 (δ = 0, by head, β the time step; Dao and Gu, 2024), Gated
// DeltaNet (δ = 1, by head; Yang et al., 2024), KDA (δ = 1, by channel; Kimi Linear, 2025).
//
// Computed by chunks of rows: with u_t = β_t·(v_t − δ·(α_t∘S_{t−1})ᵀ·k_t) a state only adds, S_t =
// diag(α_t)·S_{t−1} + k_t·u_tᵀ, and a chunk's u solve a unit lower triangular system (the WY form of Yang et
// al., "Parallelizing Linear Transformers with the Delta Rule", 2024). Products within chunks are made for
// all chunks at once; states then pass from chunk to chunk, of all sequences side by side. Decays multiply as
// differences of their logarithms, none of them above zero, so that nothing overflows however small they are.
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

// One micro-batch. States are in float (double of double); an undefined one is zero. Nothing of the input is
// written. As many heads are worked on at once as take no more memory than all would if chunks were of
// kUsualChunk rows: of many sequences shorter than that, each of which has states, fewer.
class Recurrence {
 public:
  Recurrence(RecurrenceInput input, const RecurrenceChunks& chunks);

  // o [T, H, D] of pieces that begin with these states, in float (double of double). `end_PHKD`: null, or
  // what they end with.
  at::Tensor forward(const at::Tensor& begin_PHKD, at::Tensor* end_PHKD = nullptr) const;
  RecurrencePassage passage() const;
  // The same of the gradient of an end on its way to that of the begin: dbegin = transitionᵀ·dend + added.
  at::Tensor begin_gradient(const at::Tensor& dout_THD) const;
  // `dend_PHKD`: of the states that pieces end with; undefined: zero.
  RecurrenceGradient backward(const at::Tensor& dout_THD, const at::Tensor& begin_PHKD,
                              const at::Tensor& dend_PHKD) const;

 private:
  // visit(some heads' recurrence, which of the value heads they are), one after the other.
  template <typename Visit>
  void for_each_part(Visit visit) const;

  RecurrenceInput input_;
  const RecurrenceChunks& chunks_;
  int64_t at_once_;                               // value heads
  std::shared_ptr<const HeadsRecurrence> whole_;  // where that is all
};

}  // namespace sluice::ops
