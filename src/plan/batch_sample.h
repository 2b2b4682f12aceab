// Sample batches of a corpus that stand for all of its batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strategy/step_plan.h"

namespace sluice::plan {

struct BatchSampleOptions {
  int64_t tokens_per_step = 0;
  int batches = 48;                 // returned
  int drawn_tokens_millions = 512;  // at most, to choose from; at least every batch once
  uint64_t seed = 1;
};

// Lengths of sequences by batch. Batches are drawn as in training: sequences in a seeded
// permutation, a new one every epoch, while their sum stays within tokens_per_step, at least one.
// Many are drawn, sorted by their longest sequence and cut into `batches` equal strata. Each stratum
// gives one batch, whose rank by the sum of squared lengths runs evenly through all ranks. These two
// figures determine a batch's time and best strategy, so a few batches stand for all, rare and heavy
// ones included. REQUIRES: lengths >= 1, at least one; batches and tokens_per_step >= 1.
std::vector<std::vector<int64_t>> stratified_batches(std::span<const int64_t> lengths,
                                                     const BatchSampleOptions& options);

// At least one batch, evenly spread, and together at most about `most_tokens`
// tokens. Larger batches differ less, so fewer of them suffice.
constexpr int64_t kMostSampleTokens = 20'000'000;  // tokens of the batches that judge proposals
std::vector<std::vector<int64_t>> few_batches(const std::vector<std::vector<int64_t>>& batches,
                                              int64_t most_tokens);
// The indices of these batches, at most `most` of them.
std::vector<size_t> spread_within(const std::vector<std::vector<int64_t>>& batches, int64_t most_tokens,
                                  size_t most);

// Evenly spread indices in [0, size), ascending: `most`, or all of them.
std::vector<size_t> spread(size_t size, size_t most);

// A batch in the form that planners take, its documents counted from 0.
std::vector<strategy::Sequence> sequences_of(const std::vector<int64_t>& lengths);

}  // namespace sluice::plan
