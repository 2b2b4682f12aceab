// What lanes that share parameters pay for it: gathers in front of operations, sums of gradients behind them.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.h"
#include "cost/pass_times.h"

namespace sluice::cost {

// Whether a cell of this kind gathers an operation's parameters, and whether it sums its gradients. The
// embedding's input gradient needs no parameters and weight gradients need none; the head's gradients are
// made in its forward. The model's last block stays at hand from a forward to its backward, which follows at
// once.
bool gathers(const model::Program& program, CellKind kind, int64_t position);
bool sums_gradients(const model::Program& program, CellKind kind, int64_t position);
bool stays_at_hand(const model::Program& program, int64_t position);

// The operations of a cell, in its order, as runs that are alike.
std::vector<base::Interval> alike_runs(const model::Program& program, CellKind kind, base::Interval run);

// What it takes the lanes of a share group to gather an operation's parameters, and to sum its gradients:
// each lane sends its part of them to the lane that holds it.
struct ShareTimes {
  int64_t gather_ns = 0;
  int64_t scatter_ns = 0;
  bool operator==(const ShareTimes&) const = default;
};

// Passes of one scheme whose share groups lie so on nodes: each node of a group has at least `lanes_in_node`
// of its lanes. Thread-safe once made.
class ShareCost {
 public:
  // REQUIRES: 1 <= lanes_in_node <= scheme.share.
  ShareCost(const CostModel& cost, const strategy::Scheme& scheme, int lanes_in_node);

  // Of an operation of the model program; zero with a share of 1.
  const ShareTimes& at(int64_t position) const;
  // The operations of a cell of a pass on `run` that takes the slowest of its lanes, which has `work`,
  // `compute_ns` without what lanes share. In its order, those that follow each other and are alike as one.
  std::vector<SharedOperations> operations(CellKind kind, base::Interval run, const Work& work,
                                           int64_t compute_ns) const;
  // What such a cell takes.
  int64_t cell_ns(CellKind kind, base::Interval run, const Work& work, int64_t compute_ns) const {
    return pass_ns(operations(kind, run, work, compute_ns));
  }

 private:
  ShareTimes times_of(int64_t position, int lanes_in_node) const;

  CostModel cost_;
  strategy::Scheme scheme_;
  std::vector<ShareTimes> by_kind_;  // of the program
};

}  // namespace sluice::cost
