// Parameters that follow their masters by differences of 8 or 4 bits (strategy::PullCodec), after the weight
// differences of SDP4Bit (Jia et al., 2024). An owner's copies are the sum of all differences that it has
// sent, so what one difference lost to rounding the next one has in it; whoever holds copies of the step
// before adds the same numbers to them, with the same operations, and has the owner's bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "strategy/wire_codec.h"

namespace sluice::runtime {

// Whole numbers, of 16 bits in memory whatever they take on the wire, and a factor for each group of them.
// Both are empty where nothing is coded.
struct CodedNumbers {
  at::Tensor codes;    // int16 [elements]
  at::Tensor factors;  // float [groups]
};

// master, copy [N]: of elements that begin with a group. Codes of master − copy, to the nearest; what is not
// of `coded`, which lies in [0, N), has code 0. Adds them to `copy`.
CodedNumbers follow(strategy::PullCodec codec, const at::Tensor& master_N, const at::Tensor& copy_N,
                    const base::IntervalSet& coded);

// Adds to a shard's copies, its elements end to end, what came for them; `factors`: of
// link::coding_groups(shard).
void add_differences(const CodedNumbers& came, const base::IntervalSet& shard, const at::Tensor& copy_N);

// int16 [N] as the wire takes them, one byte or half a byte each, and back.
at::Tensor packed(strategy::PullCodec codec, const at::Tensor& codes_N);
void unpack(strategy::PullCodec codec, const at::Tensor& bytes, const at::Tensor& codes_N);
int64_t packed_bytes(strategy::PullCodec codec, int64_t numbers);

}  // namespace sluice::runtime
