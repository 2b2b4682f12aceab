// Dispatch for plan::ours(): assigns sequences to pipelines by prices, then improves
// the assignment by moves and swaps on an estimate that changes in constant time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "plan/floor_table.h"
#include "plan/place.h"

namespace sluice::plan {

// Sequences, longest first, on the pipelines of a strategy. A pipeline's estimated end is the sum of
// its sequences' floors (with one stage: their work, and a constant per micro-batch that their tokens
// need) plus an overhead for fill, drain and part-filled micro-batches. Single moves leave the
// overhead as it is. With several stages the longest sequence adds its path beyond the overhead, so
// long ones stay together. set_end_ns() takes the overhead from a packing; improve() then goes on.
class Assignment {
 public:
  // group_of: each pipeline's group in `floors`, which must outlive this. overheads_ns: initial, by group.
  Assignment(const FloorTable& floors, std::span<const size_t> group_of, std::vector<int64_t> overheads_ns);

  static constexpr int64_t kNoTarget = -1;
  // Assigns every sequence, longest first, to the pipeline with the least price among those that end by
  // `target_ns`; ties go to the emptiest. Without a target or such a pipeline: to the one that ends first.
  // Longer sequences fit fewer pipelines, so the scarce pipelines fill first. REQUIRES: each fits somewhere.
  void fill(std::span<const int64_t> prices, int64_t target_ns);

  // Assigns each sequence to the pipeline that `pipeline_of` names. REQUIRES: it fits there.
  void place(std::span<const size_t> pipeline_of);

  // Moves and swaps sequences of the pipeline that ends last. A step must lower the later end of its
  // two pipelines by kNegligiblePart at least; there are at most as many as sequences, and none once
  // that pipeline ends by `goal_ns`. Tries moves, and swaps near the ideal partner, to those of each
  // group that end first. Takes the best, the first of equals, of those that reach the goal.
  void improve(int64_t goal_ns);

  int64_t estimated_ns() const;  // the end of the pipeline that ends last
  int64_t end_ns(size_t pipeline) const { return end_ns(pipelines_[pipeline]); }
  // Sets the overhead so that the pipeline ends when its packing does.
  void set_end_ns(size_t pipeline, int64_t ns) {
    Pipeline& of = pipelines_[pipeline];
    of.overhead_ns += ns - end_ns(of);
  }
  // Ascending: longest first.
  const std::vector<Place>& members(size_t pipeline) const { return pipelines_[pipeline].members; }

 private:
  static constexpr Place kNone{std::numeric_limits<int32_t>::max()};  // sorts after every sequence
  struct Load {
    int64_t work_ns = 0;  // without constants where the group has batch_tokens
    int64_t tokens = 0;
    Place longest = kNone;
  };
  struct Pipeline {
    size_t group = 0;
    int64_t overhead_ns = 0;
    Load load;
    std::vector<Place> members;
  };
  // `sequence` of the last pipeline to `to`, for `back`.
  struct Step {
    int64_t end_ns = 0;
    Place sequence = kNone;
    size_t to = 0;
    Place back = kNone;
  };

  // REQUIRES: it fits.
  int64_t work_ns(Place sequence, size_t group) const {
    const int64_t share_ns = floors_->batch_tokens(group) > 0 ? floors_->share_ns(sequence, group) : 0;
    return floors_->floor_ns(sequence, group) - share_ns;
  }
  // The load after one of the members has left and another sequence, or kNone, has come.
  Load changed(const Pipeline& of, Place gone, Place come) const;
  int64_t busy_ns(const Load& load, size_t group) const {
    const int64_t batch_tokens = floors_->batch_tokens(group);
    if (batch_tokens == 0) return load.work_ns;
    int64_t batches = 1;
    for (int64_t held = batch_tokens; held < load.tokens; held += batch_tokens) ++batches;
    return load.work_ns + batches * floors_->constant_ns(group);
  }
  // The path of the longest sequence, beyond the overhead that is expected of every pipeline.
  int64_t bubble_ns(const Pipeline& pipeline, Place longest) const {
    const int64_t beyond_ns = floors_->path_beyond_ns(longest, pipeline.group);
    return std::max<int64_t>(0, beyond_ns - first_overheads_ns_[pipeline.group]);
  }
  int64_t end_ns(const Pipeline& pipeline, const Load& load) const {
    if (load.longest == kNone) return 0;
    return busy_ns(load, pipeline.group) + pipeline.overhead_ns + bubble_ns(pipeline, load.longest);
  }
  int64_t end_ns(const Pipeline& pipeline) const { return end_ns(pipeline, pipeline.load); }
  void add(Pipeline& to, Place sequence);
  void remove(Pipeline& from, Place sequence);
  size_t last() const;
  Step best_step(const Pipeline& from, int64_t goal_ns) const;
  // The few pipelines of each group that end first, in the order of their ends.
  std::vector<size_t> soonest_of_groups() const;
  void try_swaps(const Pipeline& from, Place sequence, size_t to, Step& best) const;
  void consider(const Pipeline& from, const Step& step, Step& best) const;

  const FloorTable* floors_;
  std::vector<int64_t> first_overheads_ns_;  // by group
  std::vector<Pipeline> pipelines_;
};

}  // namespace sluice::plan
