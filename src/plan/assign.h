// Dispatch for plan::ours(): sequences to pipelines by prices, then moves and swaps on an estimate that
// changes in constant time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "plan/floor_table.h"

namespace sluice::plan {

// Sequences, longest first, on the pipelines of a strategy. A pipeline is busy with the floors of its
// sequences; with one stage with their work and a constant for each micro-batch that their tokens need. To
// this comes an overhead (fill, drain, micro-batches that cannot be filled) that does not change with single
// moves, but for what the longest sequence takes on its way through several stages beyond that: so long ones
// stay together. Packing tells the overhead afterwards, and improve() goes on from there.
class Assignment {
 public:
  // group_of: each pipeline's group in `floors`, which must outlive this. overheads_ns: at first, by group.
  Assignment(const FloorTable& floors, std::span<const int> group_of, std::vector<int64_t> overheads_ns);

  static constexpr int64_t kNoTarget = -1;
  // Puts every sequence somewhere: longest first to the pipeline where its price is least among those that
  // end by `target_ns`, the emptiest of equals; where none does, or there is no target, to the one that ends
  // first. Longer sequences fit fewer pipelines, so the scarce ones go first. REQUIRES: each fits somewhere.
  void fill(std::span<const int64_t> prices, int64_t target_ns);

  // Puts every sequence where it is told. REQUIRES: it fits there.
  void place(std::span<const int> pipeline_of);

  // Moves and swaps sequences of the pipeline that ends last while that lowers the later end of the two
  // pipelines concerned by kNegligiblePart at least, until it ends by `goal_ns`, at most once for each
  // sequence. The best of moves, and of swaps with the neighbours of the ideal partner, to those of each
  // group that end first; the first of equals, and of those that reach the goal.
  void improve(int64_t goal_ns);

  int64_t estimated_ns() const;  // of the pipeline that ends last
  int64_t end_ns(int pipeline) const { return end_ns(pipelines_[static_cast<size_t>(pipeline)]); }
  // As packing says.
  void set_end_ns(int pipeline, int64_t ns) {
    Pipeline& of = pipelines_[static_cast<size_t>(pipeline)];
    of.overhead_ns += ns - end_ns(of);
  }
  // Ascending: longest first.
  const std::vector<int>& members(int pipeline) const {
    return pipelines_[static_cast<size_t>(pipeline)].members;
  }

 private:
  static constexpr int kNone = std::numeric_limits<int>::max();  // behind every sequence
  struct Load {
    int64_t work_ns = 0;  // where a group has batch_tokens without constants
    int64_t tokens = 0;
    int longest = kNone;
  };
  struct Pipeline {
    size_t group = 0;
    int64_t overhead_ns = 0;
    Load load;
    std::vector<int> members;
  };
  // `sequence` of the last pipeline to `to`, for `back`.
  struct Step {
    int64_t end_ns = 0;
    int sequence = kNone;
    int to = kNone;
    int back = kNone;
  };

  bool fits(int sequence, size_t group) const {
    return floors_->floor_ns(static_cast<size_t>(sequence), group) != FloorTable::kDoesNotFit;
  }
  // REQUIRES: it fits.
  int64_t work_ns(int sequence, size_t group) const {
    const auto i = static_cast<size_t>(sequence);
    return floors_->floor_ns(i, group) - (floors_->batch_tokens(group) > 0 ? floors_->share_ns(i, group) : 0);
  }
  // When one of the members is gone and another sequence has come, or kNone.
  Load changed(const Pipeline& of, int gone, int come) const;
  int64_t busy_ns(const Load& load, size_t group) const {
    const int64_t batch_tokens = floors_->batch_tokens(group);
    if (batch_tokens == 0) return load.work_ns;
    int64_t batches = 1;
    for (int64_t held = batch_tokens; held < load.tokens; held += batch_tokens) ++batches;
    return load.work_ns + batches * floors_->constant_ns(group);
  }
  // What the path of the longest sequence adds to the overhead that is expected whatever there is.
  int64_t bubble_ns(const Pipeline& pipeline, int longest) const {
    const int64_t beyond_ns = floors_->path_beyond_ns(static_cast<size_t>(longest), pipeline.group);
    return std::max<int64_t>(0, beyond_ns - first_overheads_ns_[pipeline.group]);
  }
  int64_t end_ns(const Pipeline& pipeline, const Load& load) const {
    if (load.longest == kNone) return 0;
    return busy_ns(load, pipeline.group) + pipeline.overhead_ns + bubble_ns(pipeline, load.longest);
  }
  int64_t end_ns(const Pipeline& pipeline) const { return end_ns(pipeline, pipeline.load); }
  void add(Pipeline& to, int sequence);
  void remove(Pipeline& from, int sequence);
  int last() const;
  Step best_step(const Pipeline& from, int64_t goal_ns) const;
  // Of each group the few pipelines that end first, in the order of their ends.
  std::vector<int> soonest_of_groups() const;
  void try_swaps(const Pipeline& from, int sequence, int to, Step& best) const;
  void consider(const Pipeline& from, const Step& step, Step& best) const;

  const FloorTable* floors_;
  std::vector<int64_t> first_overheads_ns_;  // by group
  std::vector<Pipeline> pipelines_;
};

}  // namespace sluice::plan
