// How large units of a pipeline of several stages and lanes should be, and over how many lanes its sequences
// are cut: what plan/lane_stages.h lays out.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "plan/by_width.h"
#include "plan/packing.h"

namespace sluice::plan {

// What other units may take on the lanes of a ring that passes the stages in time, before it and after it, in
// time of their slowest stage; the rest of the lanes' time is idle.
struct Room {
  int64_t before_ns = 0;
  int64_t after_ns = 0;
  int64_t idle_ns = 0;
};

// `end_ns` is when all is to end. What it is made from must outlive it.
class StageWidths {
 public:
  explicit StageWidths(const Packing& packing);

  // What all would take, were it divisible and did it wait for nothing.
  int64_t ideal_ns() const { return ideal_ns_; }
  // Of a unit on a lane, where lanes of a node bring it down to that.
  int64_t unit_tokens() const { return unit_tokens_; }
  // Of a unit on its slowest stage, at most.
  int64_t most_ns(int64_t end_ns) const;
  // What the sequence adds to a unit of one lane.
  int64_t work_ns(int place) const { return works_ns_[static_cast<size_t>(place)]; }
  // What units that take so long on their slowest stage keep the last one busy until their gradients leave
  // it.
  int64_t through_last_ns(int64_t unit_ns) const { return unit_ns / base::kMilli * through_last_; }
  // Of the sequence alone on so many lanes.
  SchemeCost::Passage passage(int place, int width) const;
  Room room(const SchemeCost::Passage& passage, int64_t end_ns) const;
  // The fewest lanes of a node that make its unit small enough; else those, in a node or more, that it keeps
  // busy or idle for the least time in all.
  int width_of(int place, int64_t end_ns) const;

 private:
  int64_t length(int place) const { return packing_.length(place); }
  void choose_widths();
  void measure();

  const Packing& packing_;
  const SchemeCost& scheme_;
  std::vector<int64_t> works_ns_;
  std::vector<int> in_node_;  // widths, ascending
  std::vector<int> wide_;     // the same of rings that leave their node
  mutable ByWidth<SchemeCost::Passage> passages_;
  int64_t ideal_ns_ = 0;
  int64_t least_unit_ns_ = 0;  // smaller ones cost more in constants than they save
  int64_t unit_tokens_ = 0;
  int64_t ring_tokens_ = 0;  // the same where more lanes must
  // Parts of a unit, in thousandths of its slowest stage: forward and the rest on the first stage, forward
  // and input gradient on the last.
  int64_t forward_first_ = 0, backward_first_ = 0, through_last_ = 0;
};

}  // namespace sluice::plan
