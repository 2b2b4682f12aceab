// Row links: the rows at the end of one act of a step become the rows at the beginning of another, whatever the
// layouts of both. As with parameters, what moves is the intersection of who has which rows with who needs which.
//
// Every row (a token of a sequence between two operations) has one home under a plan: one TP rank of one lane. So a
// row link sums nothing, and backward is the same link with both placements exchanged.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "link/wire.h"
#include "strategy/step_plan.h"
#include "strategy/topology.h"

namespace sluice::link {

// Tokens of a sequence that lie end to end among the rows of a rank's micro-batch.
struct RowRun {
  int32_t sequence = 0;  // in StepPlan::sequences
  base::Interval tokens;
  int rank = 0;
  int micro_batch = 0;  // counted among those of the rank's lane
  int64_t row = 0;      // the first token's, in the rank's shard of the micro-batch
};

// The ranks that hold the rows at one end of an act.
struct RowPlacement {
  int world_size = 0;
  std::vector<RowRun> runs;  // ascending by sequence and tokens; no two overlap
  // By rank and micro-batch of its lane: the number of rows in its shard. Rows that round a micro-batch up to a
  // multiple of TP have no token.
  std::vector<std::vector<int64_t>> shard_rows;

  int64_t tokens() const;
};

// Rows lie on the first stage of each pipeline, or on the last.
enum class RowEnd : uint8_t { kFirstStage, kLastStage };
RowPlacement row_placement(const strategy::StepPlan& plan, int world_size, RowEnd end);

// The exchange of one rank. An Address's bucket is a micro-batch's number; kOwner is where rows are, kCompute where
// they go. REQUIRES: both placements are of the same tokens and as many ranks.
RoundWire row_wire(const RowPlacement& from, const RowPlacement& to, int64_t row_elements,
                   const strategy::Topology& topology, int rank);

// The rows that change their rank: what all ranks send between them, by theory.
int64_t moved_rows(const RowPlacement& from, const RowPlacement& to);

}  // namespace sluice::link
