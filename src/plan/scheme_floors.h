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
  // constant_ns when it runs anything.
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
  // What rings add to floor_ns when everything ends by `limit_ns`: on fewer lanes the sequence's own path
  // takes longer, and what a ring of so many exposes keeps all of them busy. Counted only where a ring of
  // sequences as long as `longest`, the batch's longest, would expose its transfers too: there no other
  // sequence can hide them by sharing the ring, because attention a token grows with length. Latencies are
  // not counted: any number of sequences may share them. Grows with the number of lanes, so the fewest are
  // the least.
  int64_t ring_floor_ns(int stage, int64_t length, int64_t longest, int64_t limit_ns) const;
  // The most lanes on which a ring of `longest` hides its transfers; up to there ring_floor_ns is 0.
  int hiding_lanes(int stage, int64_t longest) const;
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
  // What the rings of a sequence expose on all their lanes together, at least; see ring_floor_ns.
  int64_t ring_area_ns(int stage, int64_t length, int64_t longest, int lanes) const;

  const SchemeFigures& of_;
};

}  // namespace sluice::plan
