// Lower bounds on any schedule's times under a scheme, for proofs (plan/bound.h).
#pragma once

#include <cstdint>
#include <span>

#include "base/never.h"
#include "plan/scheme_figures.h"

namespace sluice::plan {

// A view of figures that outlive it.
class SchemeFloors {
 public:
  explicit SchemeFloors(const SchemeFigures& of) : of_(of) {}

  // Sequences on a stage keep it busy for at least the sum of their floors, whatever the micro-batches.
  // They need at least tokens ÷ max_len_tokens micro-batches, each with its constant c. Rounding three
  // cells of a micro-batch to nanoseconds takes less than two off each. With lanes this is the mean
  // over lanes: cutting a sequence loses no work and gives each lane a micro-batch of its own.
  int64_t floor_ns(int stage, int64_t length) const;
  // The same without the share of constants. Each lane pays constant_ns for
  // every micro-batch, so at least once if it runs anything. If lanes share
  // parameters, constant_ns includes the pass's time beside computing.
  int64_t work_floor_ns(int stage, int64_t length) const;
  int64_t constant_ns(int stage) const;
  // A lower bound on a micro-batch's forward on a stage below, as a fraction of all its cells on this
  // stage, in units of 1 ÷ kWholePart. The rounding of cells to nanoseconds is not included. 0 for stage 0.
  static constexpr int kPartBits = 20;
  static constexpr int64_t kWholePart = int64_t{1} << kPartBits;
  int64_t forward_parts(int stage) const;
  // The most that the cells of one micro-batch take on a lane's stage. `lengths`, descending: the sequences.
  int64_t fullest_ns(int stage, std::span<const int64_t> lengths) const;
  // As floor_ns for sequences of `work` in all, which need at least one micro-batch.
  int64_t floor_ns(int stage, const cost::Work& work, int sequences) const;
  // Assumptions about a batch's rings: no sequence is longer, and everything ends by then.
  struct RingLimits {
    int stage = 0;
    int64_t longest = 0;
    int64_t end_ns = 0;
  };
  // The time that the exchange between a sequence's lanes adds to floor_ns. On fewer lanes the
  // sequence's own path ends too late; the exposed time keeps all of these lanes busy. The exposed
  // time grows with the number of lanes, so the fewest lanes give the bound. A ring, of lanes or
  // of head groups, counts only if no sequence within the limits could hide its transfers by
  // sharing it (may_hide). Latencies don't count: any number of sequences may share them.
  int64_t ring_floor_ns(int64_t length, const RingLimits& limits) const;
  // The most lanes on which a ring may hide its transfers; ring_floor_ns is 0 up to that number.
  int hiding_lanes(const RingLimits& limits) const;
  // The time before a stage can begin: some micro-batch's forward on the
  // stages below and its transfers, at least those of the shortest sequence.
  int64_t fill_ns(int stage, int64_t shortest) const;
  // The path of a micro-batch with a sequence of `length`: forward and input gradient on every stage,
  // one after the other, and the weight gradient of stage 0. With lanes, the least over their numbers.
  int64_t path_ns(int64_t length) const;
  // On `lanes` lanes. Results of at least `enough_ns` are not exact.
  int64_t path_ns(int64_t length, int lanes, int64_t enough_ns = base::kNever) const;
  // The least time, without constants, that a sequence adds to the path of others
  // in its pipeline (proof in plan/longest.h). turning_ns: if it passes the last
  // stage between them, its forward and input gradient there. REQUIRES: cp = 1.
  int64_t turning_ns(int64_t length) const;
  // Wherever it runs, the least of turning_ns, its forward on stage 0, and its backward on stage 0.
  int64_t passing_ns(int64_t length) const;
  // The stage that `work` keeps busy longest, including the fill with `shortest`.
  int busiest_stage(const cost::Work& work, int64_t shortest) const;

 private:
  int lanes_in_node() const;  // an upper bound
  // Whether a sequence within the limits may have enough attention to hide the ring's transfers. Attention
  // per token grows with length. The length needed, and the lanes' computing for that length, grow with
  // the ring's members. So if a ring hides nothing, a ring of more members hides nothing either.
  bool may_hide(const cost::RingTimes& ring, int members, int member_lanes, const RingLimits& limits) const;
  // A lower bound on the exposed time, summed over lanes, of rings whose members are groups of lanes.
  int64_t rings_area_ns(const SchemeFigures::Stage::Rings& rings, int64_t length, int members,
                        int member_lanes, const RingLimits& limits) const;
  // The same for the exchange that exposes least, over `lanes` lanes or more.
  int64_t exchange_area_ns(int64_t length, int lanes, const RingLimits& limits) const;

  const SchemeFigures& of_;
};

}  // namespace sluice::plan
