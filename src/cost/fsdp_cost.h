// The cost of FSDP: all-gathers of parameters before operations, sums of gradients after them.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.h"
#include "cost/pass_times.h"
#include "strategy/fsdp_runs.h"

namespace sluice::cost {

// Whether a cell of this kind gathers an operation's parameters, and whether it sums its gradients. The
// embedding's input gradient and all weight gradients need no parameters. The head's gradients are made in
// its forward. The model's last block, if it has a backward, stays gathered until then, because its backward
// follows at once.
bool gathers(const model::Program& program, CellKind kind, int64_t position);
bool sums_gradients(const model::Program& program, CellKind kind, int64_t position);
bool stays_at_hand(const model::Program& program, int64_t position);

// The operations of a cell, in the cell's order, as runs of equal ones.
std::vector<base::Interval> alike_runs(const model::Program& program, CellKind kind, base::Interval run);

// The time that the lanes of a share group need to gather an operation's parameters and to sum its gradients:
// inside runs of lanes, then between runs (strategy::FsdpRuns).
struct FsdpTimes {
  int64_t gather_ns = 0;
  int64_t scatter_ns = 0;
  int64_t between_ns = 0;
  // Time in which a lane codes and decodes, after the operation that it waits for: for gathers, for sums.
  int64_t code_gather_ns = 0;
  int64_t code_sum_ns = 0;
  int pieces = 1;  // scatter_ns and between_ns are for one piece
  bool operator==(const FsdpTimes&) const = default;
};

// The number of pieces in which a cell's last operation sums its gradients, because nothing hides that. While
// one piece is summed between runs, the next is summed inside runs. Pieces need a lane's part to have enough
// elements for their latencies, and no codec, because codes span groups of numbers. Layers whose experts are
// divided by EP are summed in one piece.
int last_pieces(const strategy::LevelCodecs& sums, int64_t part_elements);

// Passes of one scheme whose share groups lie on nodes as `runs` says. Thread-safe once made.
class FsdpCost {
 public:
  FsdpCost(const CostModel& cost, const strategy::Scheme& scheme, const strategy::FsdpRuns& runs);

  // Times of an operation of the model program; zero if the FSDP degree is 1.
  const FsdpTimes& at(int64_t position) const;
  // The operations of a cell of a pass on `run`. The slowest lane has `work` and takes `compute_ns` without
  // FSDP. Operations are in the cell's order, equal neighbours as one; pieces of the last one's sums are
  // operations that compute nothing.
  std::vector<FsdpOperations> operations(CellKind kind, base::Interval run, const Work& work,
                                         int64_t compute_ns) const;
  // Time of such a cell.
  int64_t cell_ns(CellKind kind, base::Interval run, const Work& work, int64_t compute_ns) const {
    return pass_ns(operations(kind, run, work, compute_ns));
  }

 private:
  FsdpTimes times_of(int64_t position, const strategy::FsdpRuns& runs, bool last) const;

  CostModel cost_;
  strategy::Scheme scheme_;
  std::vector<FsdpTimes> by_kind_;       // by kind of the program
  std::vector<FsdpTimes> last_by_kind_;  // for the last operation of a cell
};

}  // namespace sluice::cost
