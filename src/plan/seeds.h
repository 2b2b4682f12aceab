// The effort of a search, and its named heuristics. Each of these can be disabled; `ablation_bench` measures
// its worth.
#pragma once

#include <array>
#include <cstdint>

namespace sluice::plan {

enum class Seed : uint8_t {
  kStacks,      // lanes of one stage (plan/strip.h) begin another load where one of several lanes has ended
  kHalves,      // lanes that share also wait between forwards and backwards: limits to each, and plan/level.h
  kLongFirst,   // a first pass that is longer than the others
  kMorePasses,  // one pass more than hold all sequences
  kFineEnds,    // trial ends are bisected to one part in kNegligiblePart, otherwise to one in kCoarsePart
  // Dispatch and rounds (plan/search.h).
  kSoonest,   // dispatch of each sequence to where it ends first, packed as it is
  kThorough,  // the best plan again, with local search
};

inline constexpr std::array kSeedNames = {"stacks",    "halves",  "long first", "more passes",
                                          "fine ends", "soonest", "thorough"};
static_assert(kSeedNames.size() == static_cast<size_t>(Seed::kThorough) + 1);

// How much a search tries. kQuick: one start, packed and improved a few times; enough to compare strategies.
// kFull: everything.
enum class Effort { kQuick, kFull };

// The set of all seeds except those left out.
class Seeds {
 public:
  constexpr bool has(Seed seed) const { return (left_out_ >> static_cast<int>(seed) & 1) == 0; }
  constexpr Seeds without(Seed seed) const {
    Seeds rest = *this;
    rest.left_out_ |= uint32_t{1} << static_cast<int>(seed);
    return rest;
  }

 private:
  uint32_t left_out_ = 0;
};

// For comparing strategies of very many ranks: plans take a fifth of the time and end as soon within a few
// per cent, because so many lanes even out by themselves.
inline constexpr Seeds kCoarseSeeds = Seeds()
                                          .without(Seed::kStacks)
                                          .without(Seed::kHalves)
                                          .without(Seed::kLongFirst)
                                          .without(Seed::kMorePasses)
                                          .without(Seed::kFineEnds);

}  // namespace sluice::plan
