// FlexSP: a step is cut into micro-batches of sequences of like length, and each is run by Ulysses groups of
// different sizes at once: long sequences by large groups, short ones by small groups.
//
// Micro-batches ("blaster"): from the fewest that hold the tokens to four more; sequences by descending
// length in consecutive runs with the least largest token sum; the least total time is kept. Groups of a
// micro-batch: the published system solves a MILP over virtual groups and buckets of lengths; here a local
// search over group sizes (powers of two that divide the heads) splits and joins groups while that lowers the
// time of the slowest one, and an assignment of single sequences (no bucket rounds them up) for each set of
// sizes: the longest first, to the group that then ends first among those with room.
//
// Stage of ZeRO and recompute are the best by enumeration, costs as for DeepSpeed. Micro-batches follow one
// another on all ranks, whatever the stage, for groups change between them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cost/cost_model.h"
#include "study/system.h"

namespace sluice::study {

std::unique_ptr<System> make_flexsp(const SystemInputs& inputs);

// How one micro-batch runs.
struct UlyssesGroups {
  std::vector<int> sizes;                   // descending; sum to at most the ranks
  std::vector<std::vector<int>> sequences;  // by group, indices into the lengths
  int64_t time_ns = 0;                      // of the slowest group
  int64_t all_to_all_ns = 0;                // of the group whose links are busy longest
};

// What a set of group sizes comes to. `in_node`: ranks of a node.
class UlyssesGroupCost {
 public:
  // `cost` knows <1,1,k> (ulysses_cost) and must outlive it.
  UlyssesGroupCost(const cost::CostModel& cost, int world_size);
  int world_size() const { return world_size_; }
  int64_t capacity_tokens() const { return capacity_tokens_; }  // of one rank
  int64_t longest(int size) const { return capacity_tokens_ / 2 * 2 * size; }
  // Forward and backward of a group's sequences in one micro-batch. REQUIRES: size is a power of two.
  int64_t time_ns(const cost::Work& work, int size) const;
  int64_t all_to_all_ns(const cost::Work& work, int size) const;  // of that

 private:
  struct Size {
    cost::Quadratic times;
    cost::RingTimes forward;
    cost::RingTimes backward;
  };
  int world_size_;
  int64_t capacity_tokens_;
  std::vector<Size> sizes_;  // by log2
};

// The longest first, each to the group that then ends first among those with room, of equals the first.
// Nothing when one finds no room.
std::optional<UlyssesGroups> assign_to_groups(std::span<const int64_t> lengths, std::span<const int> sizes,
                                              const UlyssesGroupCost& cost);

// The local search. Nothing when no set of sizes holds the lengths.
std::optional<UlyssesGroups> best_groups(std::span<const int64_t> lengths, int largest_group,
                                         const UlyssesGroupCost& cost);

// `count` runs of `lengths`, which descend, with the least largest sum: their ends. Fewer runs where one
// token sum would be 0.
std::vector<size_t> cut_evenly(std::span<const int64_t> lengths, int count);

}  // namespace sluice::study
