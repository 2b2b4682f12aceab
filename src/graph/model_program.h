// The slots of the model program (model/program.h), whose operations are the same under every strategy.
//
// Around every operation stand slots for subgraphs (Hydraulis, section 5.3), which lowering fills for one
// strategy:
//   Pull         before the operation: brings its parameters to where the strategy computes it;
//   Communicate  between neighbouring operations: carries activations forward and their gradients back when
//                the strategy computes the two on different stages, nothing when on the same;
//   Push         behind the operation's last gradient: brings it home to the owners, summing.
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

// The operations of a run that a cell of this kind works on. The head does everything in its forward
// (logits never live from one pass to the other); the embedding has no weight gradient of its own, because
// its input gradient is that; no backward goes below the first operation that trains.
base::Interval at_work(const Program& program, cost::CellKind kind, base::Interval run);
// Where lanes share parameters, the operations whose parameters a cell has gathered, and those whose
// gradients are summed behind it. A cell on `run` that is one part of a cell on `whole` gathers the first
// operation of the next part too, and leaves summing the gradients of its last `behind` ones to the next
// parts (strategy::FsdpRuns).
base::Interval gathered_by(cost::CellKind kind, base::Interval run, base::Interval whole);
base::Interval summed_by(cost::CellKind kind, base::Interval run, base::Interval whole, int behind);
// Whether a cell of this kind that works on the operation completes its parameters' gradients.
bool writes_gradient(const Program& program, cost::CellKind kind, int64_t position);

// The Pull slots filled: by operation the link round after which all its parameters are there; -1 of others than
// the trunk's.
std::vector<int> pull_rounds(const Program& program, const link::Rounds& rounds);

// Cuts a stage's run so that part i can start before the round of part i + 1 has arrived. Rounds need not
// ascend along a stage (another pipeline may want a bucket earlier), so the cuts stand where the largest
// round so far grows. Walked backward the same parts are those after which some round and all later ones
// are complete: pushes hang on the same cuts.
std::vector<base::Interval> parts_by_round(base::Interval run, const std::vector<int>& pull_rounds);

}  // namespace sluice::graph
