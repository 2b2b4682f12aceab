// Filling one pass of a pipeline's lanes: every lane has one micro-batch or none, and all end in time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plan/lane_floor.h"
#include "plan/scheme_cost.h"

namespace sluice::plan {

// What some neighbouring lanes run in a pass: whole sequences on one, or sequences that are cut over all of
// them.
struct PassLoad {
  LaneRun lanes;
  cost::Work work;     // of the fullest lane
  int64_t end_ns = 0;  // SchemeCost::unit_ns
};

// A pass that is filled: its loads, and of each of its sequences, in their order, the load that has it.
struct FilledPass {
  std::vector<PassLoad> loads;
  std::vector<int> load_of;
  int64_t end_ns() const;
};

// What sequences take on so many lanes, one micro-batch each; computed when it is first asked for, and once
// for sequences that are as long as the one before.
class WidthTimes {
 public:
  // Lengths that descend, and widths that ascend.
  WidthTimes(const SchemeCost& scheme, std::span<const int64_t> lengths, std::vector<int> widths);

  // Its work without a micro-batch's constant.
  int64_t alone_ns(int place) const { return of(place).alone_ns; }
  // The fewest lanes, `least` at least, on which it ends by then, and what it takes there; 0: on none.
  struct Fit {
    int lanes = 0;
    int64_t ns = 0;
  };
  Fit fewest_lanes(int place, int64_t limit_ns, int64_t least);

 private:
  struct Length {
    int64_t tokens = 0;
    int64_t alone_ns = 0;
    int fewest = 1;  // lanes that hold it
  };
  const Length& of(int place) const {
    return lengths_[static_cast<size_t>(length_of_[static_cast<size_t>(place)])];
  }

  const SchemeCost& scheme_;
  std::vector<int> widths_;
  std::vector<Length> lengths_;   // those that differ
  std::vector<int> length_of_;    // by place
  std::vector<int64_t> lane_ns_;  // by length, then width; -1: not asked for yet
};

class PassFill {
 public:
  // `lengths` descend; places are indices in them. Sequences are cut over one of `widths`, which ascend. What
  // it is made from must outlive it.
  PassFill(const SchemeCost& scheme, std::vector<LaneRun> nodes, std::span<const int64_t> lengths,
           std::vector<int> widths)
      : scheme_(scheme),
        times_(scheme, lengths, std::move(widths)),
        all_nodes_(std::move(nodes)),
        lengths_(lengths) {}

  // Whether the sequences at these places, the longest first, all end by then. Each takes the fewest lanes,
  // `least_lanes` at least, on which it does; it joins the lanes that it fills best of those that still end
  // in time, or begins on free ones, inside a node where it fits one, else on whole nodes.
  bool fill(std::span<const int> places, int64_t limit_ns, int least_lanes);
  const FilledPass& filled() const { return filled_; }

 private:
  // Free lanes of a node.
  struct Node {
    int first = 0;
    int end = 0;
    bool whole = true;
    int free() const { return end - first; }
  };

  int64_t capacity() const { return scheme_.lane_max_len_tokens(); }
  PassLoad& load(int index) { return filled_.loads[static_cast<size_t>(index)]; }
  bool join_single();
  void add_single(int index);
  bool extend(int index);
  const cost::Work& share_on(int lanes);  // of a sequence of this length
  bool join_cut();
  std::optional<LaneRun> free_run();
  static LaneRun take_of(Node& node, int lanes);
  bool begin();

  const SchemeCost& scheme_;
  WidthTimes times_;
  std::vector<LaneRun> all_nodes_;
  std::span<const int64_t> lengths_;
  int64_t limit_ns_ = 0;
  int64_t shortest_ = 0;  // of the sequences to come
  int64_t length_ = 0;
  int64_t alone_ns_ = 0;  // the work of a sequence of this length
  WidthTimes::Fit fit_;   // of the same, alone
  int share_lanes_ = 0;   // that share_ is for
  cost::Work share_;
  std::vector<Node> nodes_;
  FilledPass filled_;
  std::vector<std::pair<int64_t, int>> singles_;      // end and load of those on one lane, ascending
  std::vector<int> cut_;                              // the others
  std::vector<std::pair<cost::Wide, int>> tightest_;  // of join_cut
};

}  // namespace sluice::plan
