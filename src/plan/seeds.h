// What packing and search try, by name: each can be left out, and `ablation_bench` says what it is worth.
#pragma once

#include <array>
#include <cstdint>

namespace sluice::plan {

enum class Seed : uint8_t {
  // Micro-batches of one lane with stages (plan/one_lane.h).
  kAscending,
  kPeaked,
  kNearCounts,   // one micro-batch more and less than the best count of even ones
  kFarCounts,    // half of it, and twice as many
  kStageCounts,  // as many as stages, and twice as many
  // Lanes of one stage (plan/lanes.h).
  kLimits,  // cuts inside nodes finer and coarser than a quarter of the goal
  kShifts,  // sequences shifted to wider and narrower rings
  kJoined,  // whole sequences that join the last rings of their lanes
  // Lanes of several stages (plan/lane_stages.h).
  kLongTogether,  // long rings that share lanes
  kLearning,      // dealing again by what lanes end later than they are high
  kTapering,      // units that get smaller towards the ends
  // Local search on units (plan/improve.h).
  kMovedUnits,
  kMovedSequences,
  kExchanged,
  kFewUnits,  // starts from one unit a lane
  // Dispatch and rounds (plan/search.h).
  kByEstimate,   // dispatch by Eq. 2
  kThorough,     // the best plan again, with local search
  kRelocations,  // of single sequences in small batches
};

inline constexpr std::array kSeedNames = {
    "ascending",       "peaked",    "near-counts",   "far-counts",  "stage-counts", "limits",
    "shifts",          "joined",    "long-together", "learning",    "tapering",     "moved-units",
    "moved-sequences", "exchanged", "few-units",     "by-estimate", "thorough",     "relocations"};
static_assert(kSeedNames.size() == static_cast<size_t>(Seed::kRelocations) + 1);

// All but those that are left out.
class Seeds {
 public:
  bool has(Seed seed) const { return (left_out_ >> static_cast<int>(seed) & 1) == 0; }
  Seeds without(Seed seed) const {
    Seeds rest = *this;
    rest.left_out_ |= uint32_t{1} << static_cast<int>(seed);
    return rest;
  }

 private:
  uint32_t left_out_ = 0;
};

}  // namespace sluice::plan
