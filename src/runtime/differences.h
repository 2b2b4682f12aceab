// Parameters that follow their masters by differences of 8 or 4 bits (strategy::PullCodec), after the weight
// differences of SDP4Bit (Jia et al., 2024). An owner's copies are the sum of all differences that it has
// sent, so each difference corrects what rounding lost in the one before. A holder with the previous step's
// copies adds the same numbers by the same operations, so its copies equal the owner's to the bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "strategy/wire_codec.h"

namespace sluice::runtime {

// Whole numbers, of 16 bits in memory whatever their width on the wire, and a factor for each group of them.
// Both are empty where nothing is coded.
struct CodedNumbers {
  at::Tensor codes;    // int16 [elements]
  at::Tensor factors;  // float [groups]
};

// master, copy [N]: elements that begin with a coding group. Returns the codes of master − copy, rounded to
// nearest; elements outside `coded` (in [0, N)) have code 0. Adds the coded differences to `copy`.
CodedNumbers follow(strategy::PullCodec codec, const at::Tensor& master_N, const at::Tensor& copy_N,
                    const base::IntervalSet& coded);

// Adds received differences to a shard's copies, whose elements lie end to end; `factors` are those of
// link::coding_groups(shard).
void add_differences(const CodedNumbers& came, const base::IntervalSet& shard, const at::Tensor& copy_N);

// Packs int16 [N] for the wire, one byte or half a byte each, and unpacks them.
at::Tensor packed(strategy::PullCodec codec, const at::Tensor& codes_N);
void unpack(strategy::PullCodec codec, const at::Tensor& bytes, const at::Tensor& codes_N);
int64_t packed_bytes(strategy::PullCodec codec, int64_t numbers);

}  // namespace sluice::runtime
