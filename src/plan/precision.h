// How exact planning is: what differs by less than these parts counts as equal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::plan {

// Searches end where one part in so many, 0.05 %, is all that is left: half of what a rule has to earn
// somewhere to be kept (bench/results/ablation.md).
inline constexpr int64_t kNegligiblePart = 2000;

// First packings end within one part in so many, 6 %, of what local search and other packers make of them:
// what is behind by more is given up.
inline constexpr int64_t kNearPart = 16;

// A trial end that nothing meets is raised by one part in so many, then by more each time.
inline constexpr int64_t kFirstRisePart = 128;

// Up to so many sequences of a batch are worth single moves, each packed.
inline constexpr size_t kFewSequences = 16;

}  // namespace sluice::plan
