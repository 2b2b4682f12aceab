// Sampling of an engine step's tokens, a row of logits each. On a device logits stay where they are: all rows
// are drawn by operators over the vocabulary, and tokens with their probabilities come to the host in one
// copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "generate/sampling.h"

namespace sluice::generate {

// A token to be drawn from a row of logits, as sample_token() does.
struct RowDraw {
  const Sampling* sampling = nullptr;  // borrowed
  uint64_t stream = 0;
  int64_t position = 0;
  SamplingContext context;
};

// The tokens of the rows, [P, V], on any device. Draws as sample_token() in FP64; sums over the vocabulary
// may be taken in another order, so that a draw within rounding of the border between two tokens may take the
// other one. REQUIRES: as many draws as rows, all with the same `never`; sample_token()'s of each.
std::vector<SampledToken> sample_rows(const at::Tensor& logits_PV, std::span<const RowDraw> draws);

// The same by operators alone, whatever the device: sample_rows() takes it where logits are not in host
// memory.
std::vector<SampledToken> sample_on_device(const at::Tensor& logits_PV, std::span<const RowDraw> draws);

}  // namespace sluice::generate
