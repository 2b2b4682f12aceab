// Common code of reference planners for one pipeline with many lanes: they choose micro-batches and lanes;
// this code makes a step plan and times it like any other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/feasible.h"
#include "plan/packing.h"

namespace sluice::published {

class LaneReference {
 public:
  // The pipeline lies on ranks 0, 1, …. A lane's micro-batch holds `lane_tokens`; 0: as many as memory does,
  // which is also the limit. InputError if the scheme has more ranks than the world. `lengths` must outlive
  // it.
  LaneReference(const strategy::Scheme& scheme, int64_t lane_tokens, std::span<const int64_t> lengths,
                const cost::CostModel& cost, int world_size);

  // The reason why all lanes together do not hold the longest sequence; nullopt if they do. All functions
  // below require nullopt, except for figures of the scheme.
  std::optional<base::Infeasible> lacks_lanes() const;

  int lanes() const { return scheme_.scheme().cp; }
  const plan::SchemeCost& scheme() const { return scheme_; }
  int64_t lane_tokens() const { return lane_tokens_; }
  int64_t length(int sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
  strategy::MicroBatchSequence sequence(int sequence) const { return {sequence, length(sequence)}; }
  // Sequences in order of descending length, equal lengths in the order of the batch.
  std::vector<int> longest_first() const;
  // D(s) without offloading: ⌈s ÷ C⌉, or one more if 2k even chunks do not fit otherwise.
  int fewest_lanes(int64_t length) const;
  // The time of a micro-batch on each of its lanes.
  int64_t micro_batch_ns(const strategy::PipelineMicroBatch& micro_batch) const;

  // A plan of micro-batches, each queued behind those before it. REQUIRES: every sequence in exactly one
  // micro-batch; each micro-batch holds at most lane_tokens on a lane.
  strategy::StepPlan plan(std::vector<strategy::PipelineMicroBatch> micro_batches) const;

 private:
  cost::CostModel cost_;  // knows rings alone, as these planners do
  plan::SchemeCost scheme_;
  strategy::Pipeline pipeline_;
  int64_t lane_tokens_;
  std::span<const int64_t> lengths_;
};

}  // namespace sluice::published
