// Sample batches of a corpus that stand for all of its batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strategy/step_plan.h"

namespace sluice::plan {

struct BatchSampleOptions {
  int64_t tokens_per_step = 0;
  int batches = 48;                 // that are returned
  int drawn_tokens_millions = 512;  // at most, to choose from; at least every batch once
  uint64_t seed = 1;
};

// Lengths of sequences by batch. Batches are drawn as training draws them: sequences in a seeded permutation,
// a new one every epoch, while their sum stays within tokens_per_step, at least one. Many are drawn, sorted
// by their longest sequence and cut into `batches` equal strata; of each one is taken, whose rank by the sum
// of squared lengths runs through all ranks evenly from stratum to stratum. A batch's best strategy and its
// time hang on those two, so that few batches speak for all, the rare and heavy ones among them, whatever the
// seed. REQUIRES: lengths >= 1, at least one of them; batches and tokens_per_step >= 1.
std::vector<std::vector<int64_t>> stratified_batches(std::span<const int64_t> lengths,
                                                     const BatchSampleOptions& options);

// As many batches, evenly spread, as have so many tokens together, at least one of them: the larger a batch,
// the more it is like the others.
constexpr int64_t kMostSampleTokens = 20'000'000;  // that proposals are judged by
std::vector<std::vector<int64_t>> few_batches(const std::vector<std::vector<int64_t>>& batches,
                                              int64_t most_tokens);
// The places of these, and no more than `most`.
std::vector<size_t> spread_within(const std::vector<std::vector<int64_t>>& batches, int64_t most_tokens,
                                  size_t most);

// Evenly spread places of [0, size), ascending: `most`, or all of them.
std::vector<size_t> spread(size_t size, size_t most);

// A batch as a planner is given it, its documents counted from 0.
std::vector<strategy::Sequence> sequences_of(const std::vector<int64_t>& lengths);

}  // namespace sluice::plan
