// Who holds which elements of each bucket: the owner layout (optimisation phase) and the compute layout of
// a strategy (propagation phase). Where lanes share parameters a rank holds its resident part of what it
// computes with; the rest is gathered when it is at work.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "model/parameters.h"
#include "strategy/strategy.h"

namespace sluice::link {

// Every bucket is cut evenly over all ranks, so that owners are equal to an element; one of
// strategy::kLeastDifferences elements or more between groups of numbers that are coded together
// (strategy::kCodecGroup), so that each group has one owner, however many ranks there are.
base::Interval owned_part(int64_t bucket_size, int ranks, int rank);
struct OwnerLayout {
  int ranks = 1;
  base::Interval owned(const model::Bucket& bucket, int rank) const;
};

// What rank `place` of `share` ranks holds of a shard of so many elements that they share, as offsets in it:
// ⌈elements ÷ share⌉ each, the last ones what is left, so that the parts lie end to end when they are
// gathered.
base::Interval resident_part(int64_t elements, int share, int place);

// What a rank holds of a bucket: one of `parts` resident parts of the shard that it computes with.
struct Residence {
  model::Cut cut;
  int parts = 1;
  int part = 0;
};
// Lanes of a share group hold experts' parameters with those that have the same experts.
Residence residence_of(const model::Bucket& bucket, const strategy::Pipeline& pipeline, int lane, int t);

// The buckets that a rank computes with, and what it holds of each all through a step, as flat intervals of
// the bucket.
struct Holding {
  int bucket = 0;
  base::IntervalSet shard;
  // What its memory has room for: as much as the fullest of a share group, for all of them send as much.
  int64_t room_elements = 0;
};

// A strategy's compute layout. Rank by rank: the buckets that its stage's operations read, each cut by TP,
// and that shard by the lanes of its share group; groups replicate; idle ranks hold nothing.
class ComputeLayout {
 public:
  // Throws base::InputError when a scheme cannot cut the shape (model::tp_fault, more stages than layers), or
  // a placement is of other experts, naming the scheme and the fault.
  ComputeLayout(const model::ParameterTable& table, const strategy::Strategy& strategy, int world_size);

  int world_size() const { return static_cast<int>(holdings_.size()); }

  // Ascending by bucket.
  const std::vector<Holding>& holdings(int rank) const { return holdings_[static_cast<size_t>(rank)]; }
  // The rank's shard of a bucket; empty when it holds none.
  const base::IntervalSet& shard(int bucket, int rank) const;
  // Ranks that hold some of the bucket, ascending.
  std::vector<int> holders(int bucket) const;

 private:
  std::vector<std::vector<Holding>> holdings_;  // by rank
};

// Which buckets travel together. Round r carries of every stage of the deepest pipelines the blocks
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
