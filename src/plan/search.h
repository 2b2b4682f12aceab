// The search for a plan of one candidate strategy: bound, dispatch, pack, and again with what packing told.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "plan/assign.h"
#include "plan/bound.h"
#include "plan/pack.h"

namespace sluice::plan {

// A batch's lengths in descending order, equal ones in the order of the batch.
struct SortedBatch {
  explicit SortedBatch(std::vector<int64_t> batch_lengths);
  std::vector<int64_t> lengths;  // as in the batch
  std::vector<int64_t> sorted;   // descending
  std::vector<int> sequence_of;  // index into `lengths` by place in `sorted`
};

// kQuick: one start, packed and improved a few times, enough to compare strategies. kFull: everything.
enum class Effort { kQuick, kFull };

int64_t last_end_ns(const std::vector<PackedPipeline>& packed);

// What it is made from must outlive it.
class CandidateSearch {
 public:
  CandidateSearch(const strategy::Strategy& strategy, const SchemeCosts& schemes, const SortedBatch& batch,
                  Seeds seeds = {});

  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  const strategy::Strategy& strategy() const { return *strategy_; }
  // Nothing when the strategy does not hold the batch. A quick one, until raise_bound asks for all that is
  // known, but not for more than `enough_ns`.
  std::optional<int64_t> lower_bound_ns() const;
  // REQUIRES: a bound.
  void raise_bound(int64_t enough_ns);
  // REQUIRES: a bound.
  Proof proof() const { return bound_->proof; }

  // The bound with a guess at what a plan has over it; orders candidates, proves nothing.
  int64_t expected_ns() const;

  // A plan by pipeline. Two greedy starts, each improved; the better is packed; then what the makespans have
  // over the estimates becomes the overhead, and search and packing go on until that is in vain twice in a
  // row, or the bound is near. That is kQuick. kFull goes
  // on from there: the same with thorough packing; with stages also from the start in which each sequence
  // goes where it ends first, packed as it is; and in a small batch single sequences are moved as long as
  // that helps. REQUIRES: a bound. What ends at `below_ns` or later is of no use: a strategy of one pipeline,
  // whose sequences have no other place, is given up for it, and keeps what it had.
  const std::vector<PackedPipeline>& run(Effort effort, int64_t below_ns = kNever);
  // What run() found last; nothing yet: kNever.
  int64_t end_ns() const { return packed_.pipelines.empty() ? kNever : packed_.end_ns(); }
  // The same; while nothing is found the bound, or what it was given up for.
  int64_t known_ns() const {
    return packed_.pipelines.empty() ? std::max(bound_->lower_ns, given_up_ns_) : packed_.end_ns();
  }

 private:
  // A packed assignment, and what it packs.
  struct Packed {
    std::vector<PackedPipeline> pipelines;
    std::vector<std::vector<int>> members;  // by pipeline
    int64_t end_ns() const { return last_end_ns(pipelines); }
  };

  // By the bound's prices and first overheads.
  Assignment filled(int64_t target_ns) const;
  Assignment start() const;
  // Rounds of packing and improving.
  Packed pack_and_improve(Assignment assignment, int64_t goal_ns, bool improves) const;
  bool has_stages() const;
  // Of a batch, whose sequences are worth single moves, each packed.
  bool is_few() const;
  bool worth_improving(const strategy::Scheme& scheme) const;
  std::vector<int64_t> first_overheads() const;  // by group
  // Rounds come back to members that they had before, whose packing is remembered.
  const PackedPipeline& pack_pipeline(size_t pipeline, const std::vector<int>& members, bool improves,
                                      int64_t enough_ns = 0) const;
  // Packs pipelines whose members have changed, those that seem to end last first; one that ends well before
  // them need not be packed better.
  void pack_changed(const Assignment& assignment, std::vector<size_t> changed, bool improves,
                    Packed& packed) const;
  void set_overheads(const Packed& packed, Assignment& assignment) const;
  // In a small batch, where estimates are worth least: moves a sequence off the pipeline that ends last if
  // both pipelines, packed again, end sooner. False when there is none.
  bool relocate_one(Packed& packed) const;
  const SchemeCost& scheme_of(size_t pipeline) const {
    return *groups_[static_cast<size_t>(group_of_[pipeline])].scheme;
  }

  const strategy::Strategy* strategy_;
  const SortedBatch* batch_;
  Seeds seeds_;
  std::vector<SchemeGroup> groups_;
  std::vector<int> group_of_;  // by pipeline
  std::unique_ptr<FloorTable> floors_;
  std::optional<Bound> bound_;
  Packed packed_;
  int64_t below_ns_ = kNever;  // of a pipeline
  int64_t given_up_ns_ = 0;    // run()'s below_ns, when nothing was found below it
  struct Known {
    int64_t enough_ns = 0;
    PackedPipeline packed;
  };
  mutable std::map<std::tuple<size_t, bool, std::vector<int>>, Known> known_;  // by pipeline and members
};

}  // namespace sluice::plan
