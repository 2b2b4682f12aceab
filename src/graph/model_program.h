// The slots of the model program (model/program.h), whose operations are the same under every strategy.
//
// Around every operation stand slots for subgraphs (Hydraulis, section 5.3), which lowering fills for one
// strategy:
//   Pull         before the operation: brings its parameters to where the strategy computes it;
//   Communicate  between neighbouring operations: carries activations forward and their gradients back when
//                the strategy computes the two on different stages, nothing when on the same;
//   Push         after the operation's last gradient: sends gradients to the owners, which sum them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "cost/cost_model.h"
#include "link/layout.h"
#include "model/program.h"
#include "model/purpose.h"
#include "strategy/scheme.h"

namespace sluice::graph {

using model::Purpose;

using model::Operation;
using model::Program;

// The operations of a run that a cell of this kind works on. The head does everything in
// its forward, because logits never outlive it. The embedding has no weight gradient of
// its own: its input gradient is that. No backward goes below the first trained operation.
base::Interval at_work(const Program& program, cost::CellKind kind, base::Interval run);
// For FSDP: the operations whose parameters a cell has gathered, and those whose
// gradients are summed after it. `run` may be one part of a cell on `whole`. It
// then also gathers the first operation of the next part, and leaves the sums of
// its last `behind` gradients to later parts (strategy::FsdpRuns).
base::Interval gathered_by(cost::CellKind kind, base::Interval run, base::Interval whole);
base::Interval summed_by(cost::CellKind kind, base::Interval run, base::Interval whole, int behind);
// Whether a cell of this kind that works on the operation completes its parameters' gradients.
bool writes_gradient(const Program& program, cost::CellKind kind, int64_t position);

// The filled Pull slots. By operation: the link round after which
// all its parameters are there; -1 for operations of other trunks.
std::vector<int> pull_rounds(const Program& program, const link::Rounds& rounds);

// Cuts a stage's run so that part i can start before the round of part i + 1 has arrived.
// Rounds need not ascend along a stage, because another pipeline may want a bucket
// earlier. So the cuts stand where the largest round so far grows. In backward order, each
// of these parts completes some round and all later ones, so pushes use the same cuts.
std::vector<base::Interval> parts_by_round(base::Interval run, const std::vector<int>& pull_rounds);

}  // namespace sluice::graph
