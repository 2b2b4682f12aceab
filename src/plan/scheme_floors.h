// What any schedule takes at least under a scheme, for proofs (plan/bound.h).
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "plan/scheme_figures.h"

namespace sluice::plan {

// A view of figures that outlive it.
class SchemeFloors {
 public:
  explicit SchemeFloors(const SchemeFigures& of) : of_(of) {}

  // Sequences that share a stage keep it busy for no less than the sum of their floors, however they are put
  // into micro-batches: c is paid by at least tokens ÷ max_len_tokens micro-batches, and rounding three cells
  // of a micro-batch to nanoseconds takes less than two off each. With lanes that is the mean over them:
  // cutting a sequence loses no work and gives each of its lanes a micro-batch of its own.
  int64_t floor_ns(int stage, int64_t length) const;
  // The same without its share of constants, which each lane pays for every micro-batch: at least one
  // constant_ns when it runs anything. Where lanes share parameters that is with what a pass takes beside
  // computing.
  int64_t work_floor_ns(int stage, int64_t length) const;
  int64_t constant_ns(int stage) const;
  // The least part that the forward of any micro-batch on a stage below has of all its cells on this one, of
  // kWholePart, but for the rounding of cells to nanoseconds. 0 for stage 0.
  static constexpr int kPartBits = 20;
  static constexpr int64_t kWholePart = int64_t{1} << kPartBits;
  int64_t forward_parts(int stage) const;
  // The most that the cells of a micro-batch of these sequences, which descend, take on a lane's stage.
  int64_t fullest_ns(int stage, std::span<const int64_t> lengths) const;
  // What floor_ns says for sequences of `work` in all, which need at least one micro-batch.
  int64_t floor_ns(int stage, const cost::Work& work, int sequences) const;
  // What a batch's rings are held to: no sequence is longer, and everything ends by then.
  struct RingLimits {
    int stage = 0;
    int64_t longest = 0;
    int64_t end_ns = 0;
  };
  // What the exchange between its lanes adds to floor_ns: on fewer lanes the sequence's own path ends too
  // late, and what it exposes on so many keeps all of them busy. It grows with the number of lanes, so the
  // fewest are the least. A ring, of lanes or of head groups, counts only where no sequence
  // within the limits would hide its transfers by sharing it (may_hide). Latencies are not counted: any
  // number of sequences may share them.
  int64_t ring_floor_ns(int64_t length, const RingLimits& limits) const;
  // The most lanes on which a ring may hide its transfers; up to there ring_floor_ns is 0.
  int hiding_lanes(const RingLimits& limits) const;
  // Before a stage can begin: some micro-batch's forward on the stages below and its transfers. None has less
  // than the shortest sequence.
  int64_t fill_ns(int stage, int64_t shortest) const;
  // A micro-batch that holds a sequence of `length`: forward and input gradient on every stage, each after
  // the other, and the weight gradient of stage 0. With lanes, the least over how many it is cut.
  int64_t path_ns(int64_t length) const;
  // On so many; not more exactly than that it takes `enough_ns` or longer.
  int64_t path_ns(int64_t length, int lanes, int64_t enough_ns = std::numeric_limits<int64_t>::max()) const;
  // What a sequence adds at least, without constants, to the path of others that share its pipeline (the
  // proof stands at plan/longest.h). When it passes the last stage between them: its forward and input
  // gradient there. REQUIRES: cp = 1.
  int64_t turning_ns(int64_t length) const;
  // Wherever it runs: the same, its forward on stage 0, or its input and weight gradient there.
  int64_t passing_ns(int64_t length) const;
  // The stage that `work` keeps busy longest, its fill with `shortest` included.
  int busiest_stage(const cost::Work& work, int64_t shortest) const;

 private:
  int lanes_in_node() const;  // at most
  // Whether a sequence within the limits has as much attention as a ring's transfers take. Attention a token
  // grows with length, and the length that it takes with the ring's members; so does what the lanes have to
  // compute of that length, so that a ring of more members hides nothing where one of fewer does not.
  bool may_hide(const cost::RingTimes& ring, int members, int member_lanes, const RingLimits& limits) const;
  // What rings whose members are groups of so many lanes expose on all of them together, at least.
  int64_t rings_area_ns(const SchemeFigures::Stage::Rings& rings, int64_t length, int members,
                        int member_lanes, const RingLimits& limits) const;
  // The same of the exchange that exposes least, over so many lanes or more.
  int64_t exchange_area_ns(int64_t length, int lanes, const RingLimits& limits) const;

  const SchemeFigures& of_;
};

}  // namespace sluice::plan
