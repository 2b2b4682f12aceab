// Bin packing: sequences into the micro-batches of one lane, bins of so many tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice::plan {

// A sequence to be packed into a micro-batch.
struct PackItem {
  int sequence = 0;  // index into the batch
  int64_t tokens = 0;
  int64_t work_ns = 0;  // SchemeCost::sequence_ns
};

// Micro-batches as lists of indices into the items.
using Bins = std::vector<std::vector<int>>;

// First-fit decreasing: few bins of at most `capacity_tokens`. REQUIRES: each item fits a bin.
Bins first_fit_decreasing(std::span<const PackItem> items, int64_t capacity_tokens);

// Exactly `bins` bins with even work: items in descending order of work, each into the bin with the least
// work among those with room. Nothing if an item finds no room. REQUIRES: 1 <= bins <= items.size().
std::optional<Bins> balance(std::span<const PackItem> items, int bins, int64_t capacity_tokens);

// The number V of equal micro-batches with which PP stages take least. The time is
// about (W/V + c)·(V + PP − 1), but weight gradients that are split off fill half of
// the bubble: W + c·V + W·(PP − 1)/2V, least at V = √(W·(PP − 1)/2c). At least 1.
int64_t even_micro_batches(int64_t work_ns, int64_t micro_batch_ns, int pp);

// The place of item i of `count` if items fill places alternately from the front and the back inwards.
inline int place_towards_middle(int i, int count) { return i % 2 == 0 ? i / 2 : count - 1 - i / 2; }

}  // namespace sluice::plan
