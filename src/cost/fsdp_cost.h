// What lanes that share parameters pay for it: gathers in front of operations, sums of gradients behind them.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.h"
#include "cost/pass_times.h"
#include "strategy/fsdp_runs.h"

namespace sluice::cost {

// Whether a cell of this kind gathers an operation's parameters, and whether it sums its gradients. The
// embedding's input gradient needs no parameters and weight gradients need none; the head's gradients are
// made in its forward. The model's last block stays at hand from a forward to its backward, which follows at
// once where there is one.
bool gathers(const model::Program& program, CellKind kind, int64_t position);
bool sums_gradients(const model::Program& program, CellKind kind, int64_t position);
bool stays_at_hand(const model::Program& program, int64_t position);

// The operations of a cell, in its order, as runs that are alike.
std::vector<base::Interval> alike_runs(const model::Program& program, CellKind kind, base::Interval run);

// What it takes the lanes of a share group to gather an operation's parameters, and to sum its gradients: in
// runs of lanes, then between these (strategy::FsdpRuns).
struct FsdpTimes {
  int64_t gather_ns = 0;
  int64_t scatter_ns = 0;
  int64_t between_ns = 0;
  // That the lane codes and reads what travels, behind the operation that it waits for: of gathers, of sums.
  int64_t code_gather_ns = 0;
  int64_t code_sum_ns = 0;
  int pieces = 1;  // scatter_ns and between_ns are of one of them
  bool operator==(const FsdpTimes&) const = default;
};

// Nothing hides the sums of a cell's last operation. Those that are made in runs go in so many pieces, of
// which each is summed between runs while the next one is in runs: of a lane's part of so many numbers, where
// pieces have enough of them for their latencies, and uncoded, for codes are of groups of numbers. Not those
// of layers whose experts lanes divide.
int last_pieces(const strategy::LevelCodecs& sums, int64_t part_elements);

// Passes of one scheme whose share groups lie on nodes as `runs` says. Thread-safe once made.
class FsdpCost {
 public:
  FsdpCost(const CostModel& cost, const strategy::Scheme& scheme, const strategy::FsdpRuns& runs);

  // Of an operation of the model program; zero with a share of 1.
  const FsdpTimes& at(int64_t position) const;
  // The operations of a cell of a pass on `run` that takes the slowest of its lanes, which has `work`,
  // `compute_ns` without what lanes share. In its order, those that follow each other and are alike as one;
  // pieces of the last one's sums are operations that compute nothing.
  std::vector<FsdpOperations> operations(CellKind kind, base::Interval run, const Work& work,
                                         int64_t compute_ns) const;
  // What such a cell takes.
  int64_t cell_ns(CellKind kind, base::Interval run, const Work& work, int64_t compute_ns) const {
    return pass_ns(operations(kind, run, work, compute_ns));
  }

 private:
  FsdpTimes times_of(int64_t position, const strategy::FsdpRuns& runs, bool last) const;

  CostModel cost_;
  strategy::Scheme scheme_;
  std::vector<FsdpTimes> by_kind_;       // of the program
  std::vector<FsdpTimes> last_by_kind_;  // where an operation is a cell's last one
};

}  // namespace sluice::cost
