// FlexSP's planner (arXiv 2412.01523). A step is cut into micro-batches of sequences of similar length.
// Ulysses groups of different sizes run each micro-batch at once: long sequences in large groups, short
// sequences in small groups.
//
// Micro-batches ("blaster"): counts from the fewest that hold the tokens to four more are tried, and the
// least total time wins. Sequences by descending length are cut into consecutive runs with the least largest
// token sum. Groups of a micro-batch: the published system solves a MILP over virtual groups and buckets of
// lengths, warm-started by greedy homogeneous placements. Here a local search over group sizes (powers of two
// that divide the heads) begins at the best two of these placements. It splits and joins groups while that
// lowers the slowest group's time. For each set of sizes, single sequences are assigned (without buckets):
// the longest first, to the group that then ends first among those with room. Then sequences of the slowest
// group move, or are exchanged with another group's, while the slowest group ends sooner. Tests in lab/milp
// compare the result with a bound that the program proves.
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

// The groups that run one micro-batch.
struct FlexSpGroups {
  std::vector<int> sizes;                   // descending; sum to at most the ranks
  std::vector<std::vector<int>> sequences;  // by group, indices into the lengths
  int64_t time_ns = 0;                      // time of the slowest group
};

// Costs of groups: forward and backward, with the exchange, without the parameters that lanes share.
class FlexSpCost {
 public:
  // REQUIRES: a scheme of tp = pp = 1 that the cost model knows. `cost` must outlive it.
  FlexSpCost(const GroupProgram& program, const cost::CostModel& cost, int world_size);
  int ranks() const { return program_.scheme.cp; }
  int largest() const { return 1 << (sizes_.size() - 1); }               // largest group size
  int64_t capacity_tokens(int size) const { return at(size).capacity; }  // per rank
  // The length of the longest sequence that any group holds.
  int64_t longest() const;
  cost::Work work_of(int64_t length) const { return cost::Work::of_lane(length, length, 1, cost_.window()); }
  // The time of a group's slowest rank for `work` in one micro-batch. REQUIRES: size is a power of two.
  int64_t time_ns(const cost::Work& work, int size) const;
  // The time of a whole micro-batch, with all-gathers and reduce-scatters.
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

// Assigns the longest first, each to the group that then ends first among those with room, of equals the
// first. Nullopt if a sequence finds no room.
std::optional<FlexSpGroups> assign_to_groups(std::span<const int64_t> lengths, std::span<const int> sizes,
                                             const FlexSpCost& cost);

// The local search. Nullopt if no set of sizes holds the lengths.
std::optional<FlexSpGroups> best_groups(std::span<const int64_t> lengths, const FlexSpCost& cost);

// The local search from `sizes`, which descend and sum to at most the ranks. Nullopt if these sizes do not
// hold the lengths.
std::optional<FlexSpGroups> groups_near(std::span<const int64_t> lengths, std::span<const int> sizes,
                                        const FlexSpCost& cost);

// Cuts the descending `lengths` into `count` runs with the least largest sum; returns their ends. Fewer runs
// if a token sum would be 0.
std::vector<size_t> cut_evenly(std::span<const int64_t> lengths, int count);

// Returns groups for a micro-batch's descending lengths that are at least as fast as `found`, which is not
// empty; for example a solver's (lab/milp).
using ImproveGroups = std::function<FlexSpGroups(std::span<const int64_t> lengths, const FlexSpCost& cost,
                                                 const FlexSpGroups& found)>;

// Numbers of micro-batches that the search puts within a hundredth of the best are improved before the
// choice. InfeasibleError if a sequence is longer than any group holds.
strategy::StepPlan flex_sp_plan(const GroupProgram& program, std::span<const int64_t> lengths,
                                const cost::CostModel& cost, int world_size,
                                const ImproveGroups& improve = nullptr);

}  // namespace sluice::published
