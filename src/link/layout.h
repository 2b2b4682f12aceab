// The elements of each bucket that each rank holds: in the owner layout (optimizer phase) and in the compute
// layout of a strategy (forward and backward). In a share group a rank holds its resident part of its shard
// throughout a step; the whole shard is all-gathered while an operation runs.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "model/parameters.h"
#include "strategy/strategy.h"

namespace sluice::link {

// Every bucket is cut evenly over all ranks, to within one element. A bucket of at least
// strategy::kLeastDifferences elements is cut only between groups of numbers that are coded together
// (strategy::kCodecGroup), so that each group has one owner for any number of ranks.
base::Interval owned_part(int64_t bucket_size, int ranks, int rank);
struct OwnerLayout {
  int ranks = 1;
  base::Interval owned(const model::Bucket& bucket, int rank) const;
};

// The resident part of rank `place` out of `share` ranks that share a shard of `elements` elements, as
// offsets in the shard. Each holds ⌈elements ÷ share⌉, the last ones the remainder, so gathered parts lie end
// to end.
base::Interval resident_part(int64_t elements, int share, int place);

// Describes what a rank holds of a bucket: one of `parts` resident parts of the shard that it computes with.
struct Residence {
  model::Cut cut;
  int parts = 1;
  int part = 0;
};
// Experts' parameters are shared only by the lanes of a share group that have the same experts.
Residence residence_of(const model::Bucket& bucket, const strategy::Pipeline& pipeline, int lane, int t);

// A bucket that a rank computes with, and the flat intervals of the bucket that the rank holds throughout a
// step.
struct Holding {
  int bucket = 0;
  base::IntervalSet shard;
  // Room in memory for it: as much as the share group's fullest rank has, since all send equally much.
  int64_t room_elements = 0;
};

// A strategy's compute layout. Each rank has the buckets that its stage's operations read, each cut by TP,
// and that shard cut by the lanes of its share group. Share groups are replicas; idle ranks hold nothing.
class ComputeLayout {
 public:
  // Throws base::InputError naming the scheme and the fault if a scheme cannot cut the model
  // (model::tp_fault, more stages than layers), or a placement is for other experts.
  ComputeLayout(const model::ParameterTable& table, const strategy::Strategy& strategy, int world_size);
  // The layout in which no rank holds anything.
  explicit ComputeLayout(int world_size) : holdings_(static_cast<size_t>(world_size)) {}

  int world_size() const { return static_cast<int>(holdings_.size()); }

  // The buckets that the rank holds, ascending by bucket.
  const std::vector<Holding>& holdings(int rank) const { return holdings_[static_cast<size_t>(rank)]; }
  // The rank's shard of a bucket; empty if it holds none.
  const base::IntervalSet& shard(int bucket, int rank) const;
  // Ranks that hold a part of the bucket, ascending.
  std::vector<int> holders(int bucket) const;

 private:
  std::vector<std::vector<Holding>> holdings_;  // by rank
};

// The buckets that move together. Round r carries of every stage of the deepest pipelines the blocks
// [⌊r·blocks/R⌋, ⌊(r+1)·blocks/R⌋) with R = max over all stages of ⌈blocks/(TP·share)⌉; the embedding joins
// the first round and the head the last. Push uses the same rounds in reverse. A bucket travels once, whoever
// needs it. The deepest pipelines' stages cut all others about evenly, so that in each round every rank gets
// the same part of what it needs and none waits for another's. Buckets that are not trained are left out of
// pushes, and those that no operation of the program's run reads travel in no round.
struct Rounds {
  std::vector<std::vector<int>> buckets;  // by round, ascending bucket indices; no round is empty
  int round_of(int bucket) const;         // -1: none
};
Rounds rounds(const model::ParameterTable& table, const strategy::Strategy& strategy);

}  // namespace sluice::link
