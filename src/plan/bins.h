// Sequences to micro-batches of one lane: bins of so many tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/seeds.h"

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

// Even bins where the lowest count that holds the tokens allows them, else as few as first-fit decreasing
// finds. REQUIRES: each item fits a bin.
Bins fewest_bins(std::span<const PackItem> items, int64_t capacity_tokens);

// Bins whose work follows `targets` (relative, in order of injection): the most work first, each to the bin
// furthest below its share among those with room. Nothing when an item finds no room or a bin stays empty.
std::optional<Bins> follow(std::span<const PackItem> items, std::span<const int64_t> targets,
                           int64_t capacity_tokens);

// The numbers of micro-batches worth trying, ascending, within [fewest, items]. With V equal micro-batches of
// a pipeline the time is about (W/V + c)·(V + PP − 1), least at V = √(W·(PP − 1)/c); splitting weight
// gradients off fills part of the bubble, which lowers it to √(0.6·W·(PP − 1)/c).
std::vector<int> micro_batch_counts(int64_t work_ns, int64_t micro_batch_ns, int pp, int fewest, int items,
                                    Seeds seeds = {});

}  // namespace sluice::plan
