// How many lanes each sequence of a pipeline takes, for the packer of plan/lanes.h.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plan/by_width.h"
#include "plan/packing.h"

namespace sluice::plan {

// How long a cut sequence may take.
struct CutLimits {
  int64_t in_node_ns = 0;  // on the lanes of a node
  int64_t goal_ns = 0;     // where it takes longer there: more lanes, to be done by then
};

// What it is made from must outlive it.
class LaneWidths {
 public:
  explicit LaneWidths(const Packing& packing);

  // SchemeCost::lane_ns.
  int64_t lane_ns(int place, int width) const;
  // By place: the fewest lanes inside a node, of widths that nest, that keep the limit there; else the fewest
  // that reach the goal; else those that take least. Equal lengths take as many, and shorter ones than one on
  // a single lane take one.
  std::vector<int> choose(const CutLimits& limits) const;
  // Of each run of sequences with equal widths the longest ones to wider rings, or the shortest to narrower
  // ones: one, then all. Until `consider` says that it is enough, which is returned.
  bool shift(const std::vector<int>& widths, const std::function<bool(std::vector<int>)>& consider) const;

 private:
  int64_t length(int place) const { return packing_.length(place); }
  int lanes_for(int place, const CutLimits& limits) const;
  int next_width(int place, int lanes, bool wider) const;

  const Packing& packing_;
  const SchemeCost& scheme_;
  std::vector<int> node_widths_;  // descending, those of one lane left out
  std::vector<int> allowed_;      // widths that a search tries, ascending
  mutable ByWidth<int64_t> known_ns_;
};

}  // namespace sluice::plan
