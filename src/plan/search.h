// The search for a plan of one candidate strategy: bound, dispatch, pack, and repeat with real overheads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "base/never.h"
#include "plan/assign.h"
#include "plan/bound.h"
#include "plan/few_sequences.h"
#include "plan/pack.h"
#include "plan/seeds.h"

namespace sluice::plan {

// A batch's lengths in descending order; equal lengths in the order of the batch.
struct SortedBatch {
  explicit SortedBatch(std::vector<int64_t> batch_lengths);
  std::vector<int64_t> lengths;  // as in the batch
  std::vector<int64_t> sorted;   // by place, descending
  std::vector<int> sequence_of;  // by place: index into `lengths`
};

// The arguments must outlive this.
class CandidateSearch {
 public:
  CandidateSearch(const strategy::Strategy& strategy, const SchemeCosts& schemes, const SortedBatch& batch,
                  Seeds seeds = {});

  const strategy::Strategy& strategy() const { return *strategy_; }
  // A quick lower bound; nothing if the strategy does not hold the
  // batch. raise_bound() applies all proofs, up to `enough_ns`.
  std::optional<int64_t> lower_bound_ns() const;
  // REQUIRES: a bound.
  void raise_bound(int64_t enough_ns);
  // REQUIRES: a bound.
  Proof proof() const { return bound_->proof; }

  // The bound plus a guess of a plan's excess over it. Orders candidates, proves nothing.
  int64_t expected_ns() const;

  // Plans all pipelines. kQuick improves two greedy starts and packs the better one. The
  // makespans' excess over the estimates then becomes the overhead. Search and packing repeat
  // until two rounds in a row bring no gain or the bound is near. kFull continues with
  // thorough packing. With stages it also packs the start in which each sequence goes where
  // it ends first. In a small batch it moves and exchanges single sequences while that gains. Plans that
  // end at `below_ns` or later are useless: a strategy of one pipeline, whose sequences have
  // no other place, is given up at that end and keeps its earlier plan. REQUIRES: a bound.
  const std::vector<PackedPipeline>& run(Effort effort, int64_t below_ns = base::kNever);
  // The end of the plan that run() found last; base::kNever before.
  int64_t end_ns() const { return packed_.pipelines.empty() ? base::kNever : packed_.end_ns(); }
  // The same; before a plan is found: the bound, or the end that the search gave up at.
  int64_t known_ns() const {
    return packed_.pipelines.empty() ? std::max(bound_->lower_ns, given_up_ns_) : packed_.end_ns();
  }

 private:
  // Filled by the bound's prices and first overheads.
  Assignment filled(int64_t target_ns) const;
  Assignment start() const;
  // Rounds of packing and improving.
  PackedAssignment pack_and_improve(Assignment assignment, int64_t goal_ns, bool improves) const;
  bool has_stages() const;
  // Whether the batch is small enough that moves of single sequences are worth a packing each.
  bool is_few() const;
  bool worth_improving(const strategy::Scheme& scheme) const;
  std::vector<int64_t> first_overheads() const;  // by group
  // Packs a pipeline, or returns a remembered packing: rounds often come back to earlier members.
  const PackedPipeline& pack_pipeline(size_t pipeline, const std::vector<Place>& members, bool improves,
                                      int64_t enough_ns = 0) const;
  // Packs pipelines whose members have changed, those with the latest estimated
  // end first. A pipeline that ends well before them need not be packed better.
  void pack_changed(const Assignment& assignment, std::vector<size_t> changed, bool improves,
                    PackedAssignment& packed) const;
  void set_overheads(const PackedAssignment& packed, Assignment& assignment) const;
  const SchemeCost& scheme_of(size_t pipeline) const { return *groups_[group_of_[pipeline]].scheme; }

  const strategy::Strategy* strategy_;
  const SortedBatch* batch_;
  Seeds seeds_;
  std::vector<SchemeGroup> groups_;
  std::vector<size_t> group_of_;  // by pipeline
  std::unique_ptr<FloorTable> floors_;
  std::optional<Bound> bound_;
  PackedAssignment packed_;
  int64_t below_ns_ = base::kNever;  // for a single pipeline
  int64_t given_up_ns_ = 0;          // run()'s below_ns if no plan was found below it
  struct Known {
    int64_t enough_ns = 0;
    PackedPipeline packed;
  };
  mutable std::map<std::tuple<size_t, bool, std::vector<Place>>, Known> known_;  // by pipeline and members
};

}  // namespace sluice::plan
