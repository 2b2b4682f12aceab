// Sequences to micro-batches of one lane: bins of so many tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice::plan {

// A sequence on its way into a micro-batch.
struct PackItem {
  int sequence = 0;  // index into the batch
  int64_t tokens = 0;
  int64_t work_ns = 0;  // SchemeCost::sequence_ns
};

// Micro-batches as lists of indices into the items.
using Bins = std::vector<std::vector<int>>;

// First-fit decreasing: few bins of at most `capacity_tokens`. REQUIRES: each item fits a bin.
Bins first_fit_decreasing(std::span<const PackItem> items, int64_t capacity_tokens);

// Exactly `bins` bins with even work: the most work first, each to the bin with the least work among those
// with room. Nothing when an item finds no room. REQUIRES: 1 <= bins <= items.size().
std::optional<Bins> balance(std::span<const PackItem> items, int bins, int64_t capacity_tokens);

// V of V equal micro-batches with which a pipeline of PP stages takes least. The time is about
// (W/V + c)·(V + PP − 1), but weight gradients that are split off fill half of the bubble: W + c·V +
// W·(PP − 1)/2V, least at V = √(W·(PP − 1)/2c). At least 1.
int64_t even_micro_batches(int64_t work_ns, int64_t micro_batch_ns, int pp);

// The place of the i-th of so many that are put alternately in front and behind, towards the middle.
inline int place_towards_middle(int i, int count) { return i % 2 == 0 ? i / 2 : count - 1 - i / 2; }

}  // namespace sluice::plan
