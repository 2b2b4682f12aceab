// FlexSP's planner (arXiv 2412.01523): a step is cut into micro-batches of sequences of like length, and each
// is run by Ulysses groups of different sizes at once: long sequences by large groups, short ones by small
// groups.
//
// Micro-batches ("blaster"): from the fewest that hold the tokens to four more; sequences by descending
// length in consecutive runs with the least largest token sum; the least total time is kept. Groups of a
// micro-batch: the published system solves a MILP over virtual groups and buckets of lengths, warm-started by
// greedy homogeneous placements; here a local search over group sizes (powers of two that divide the heads)
// begins at the best two of these and splits and joins groups while that lowers the time of the slowest one.
// For each set of sizes single sequences are assigned (no bucket rounds them up): the longest first, to the
// group that then ends first among those with room; then sequences of the slowest group move, or change
// places with another group's, while that makes it end sooner. lab/milp holds it to a bound that the
// program proves.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cost/cost_model.h"
#include "cost/exchange.h"
#include "cost/fsdp_cost.h"
#include "published/lane_groups.h"
#include "strategy/step_plan.h"

namespace sluice::published {

// How one micro-batch runs.
struct FlexSpGroups {
  std::vector<int> sizes;                   // descending; sum to at most the ranks
  std::vector<std::vector<int>> sequences;  // by group, indices into the lengths
  int64_t time_ns = 0;                      // of the slowest group
};

// What groups of a program cost: forward and backward, with the exchange, without what lanes share.
class FlexSpCost {
 public:
  // REQUIRES: a scheme of tp = pp = 1 that the cost model knows. `cost` must outlive it.
  FlexSpCost(const GroupProgram& program, const cost::CostModel& cost, int world_size);
  int ranks() const { return program_.scheme.cp; }
  int largest() const { return 1 << (sizes_.size() - 1); }               // of groups
  int64_t capacity_tokens(int size) const { return at(size).capacity; }  // of one rank
  // The longest sequence that any group holds.
  int64_t longest() const;
  cost::Work work_of(int64_t length) const { return cost::Work::of_lane(length, length, 1, cost_.window()); }
  // What its slowest rank takes of a group's sequences in one micro-batch. REQUIRES: size is a power of two.
  int64_t time_ns(const cost::Work& work, int size) const;
  // A whole micro-batch, with gathers and sums.
  int64_t micro_batch_ns(const FlexSpGroups& groups, std::span<const int64_t> lengths) const;
  const GroupProgram& program() const { return program_; }

 private:
  struct Size {
    int64_t capacity = 0;
    cost::LanePlace place;
  };
  const Size& at(int size) const;

  GroupProgram program_;
  const cost::CostModel& cost_;
  cost::Quadratic times_;
  cost::Exchanges exchanges_;
  cost::FsdpCost share_;
  std::vector<Size> sizes_;  // by log2
};

// The longest first, each to the group that then ends first among those with room, of equals the first.
// Nothing when one finds no room.
std::optional<FlexSpGroups> assign_to_groups(std::span<const int64_t> lengths, std::span<const int> sizes,
                                             const FlexSpCost& cost);

// The local search. Nothing when no set of sizes holds the lengths.
std::optional<FlexSpGroups> best_groups(std::span<const int64_t> lengths, const FlexSpCost& cost);

// The local search from these sizes on, which descend and sum to at most the ranks. Nothing when they do not
// hold the lengths.
std::optional<FlexSpGroups> groups_near(std::span<const int64_t> lengths, std::span<const int> sizes,
                                        const FlexSpCost& cost);

// `count` runs of `lengths`, which descend, with the least largest sum: their ends. Fewer runs where one
// token sum would be 0.
std::vector<size_t> cut_evenly(std::span<const int64_t> lengths, int count);

// Returns groups for a micro-batch's descending lengths that are at least as fast as `found`, which is not
// empty; for example a solver's (lab/milp).
using ImproveGroups = std::function<FlexSpGroups(std::span<const int64_t> lengths, const FlexSpCost& cost,
                                                 const FlexSpGroups& found)>;

// The numbers of micro-batches that the search puts within a hundredth of the best are improved before one is
// taken. InfeasibleError when a sequence is longer than any group holds.
strategy::StepPlan flex_sp_plan(const GroupProgram& program, std::span<const int64_t> lengths,
                                const cost::CostModel& cost, int world_size,
                                const ImproveGroups& improve = nullptr);

}  // namespace sluice::published
