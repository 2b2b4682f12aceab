// The precision of planning: times that differ by less than these parts count as equal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::plan {

// Searches end when one part in kNegligiblePart, 0.05 %, is left: half of
// what a rule has to earn somewhere to be kept (bench/results/ablation.md).
inline constexpr int64_t kNegligiblePart = 2000;

// The same for quick comparisons of strategies, where plans differ by per cents.
inline constexpr int64_t kCoarsePart = 250;

// First packings end within one part in kNearPart, 6 %, of the result of
// local search and other packers: candidates further behind are given up.
inline constexpr int64_t kNearPart = 16;

// A trial end that no filling meets is raised by one part in kFirstRisePart, then by more each time.
inline constexpr int64_t kFirstRisePart = 128;

// In batches of at most so many sequences, moves of single sequences are worth a packing each.
inline constexpr size_t kFewSequences = 16;

}  // namespace sluice::plan
