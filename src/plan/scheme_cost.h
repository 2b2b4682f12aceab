// What planning asks of a scheme, computed once: how long a sequence keeps its slowest stage busy, and how
// much its memory holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cost/cost_model.h"
#include "cost/exchange.h"

namespace sluice::plan {

class SchemeCost {
 public:
  SchemeCost(const strategy::Scheme& scheme, const cost::CostModel& cost, int world_size);

  const strategy::Scheme& scheme() const { return scheme_; }
  // The longest sequence, on all lanes if need be; 0: the model does not fit.
  int64_t max_len_tokens() const { return max_len_tokens_; }
  // What a lane's micro-batch holds, and what its lane holds at a time.
  int64_t lane_max_len_tokens() const { return lane_max_len_tokens_; }
  int64_t credit_tokens() const { return credit_tokens_; }
  // The shortest micro-batch that keeps its ranks busy.
  int64_t util_len_tokens() const { return util_len_tokens_; }
  // The fewest lanes that hold a sequence: one when a lane does, else as many as its 2k even chunks need.
  // REQUIRES: length <= max_len_tokens().
  int fewest_lanes(int64_t length) const;
  // How long a sequence that is cut over `lanes` lanes keeps each of them busy on the slowest stage: a
  // micro-batch of its own, with what the cheapest exchange exposes where they begin with a node.
  int64_t lane_ns(int64_t length, int lanes) const { return unit_ns(share_of(length, lanes), lanes); }
  // The same for a micro-batch of `work` on the fullest of its lanes, all of it shared when there are
  // several.
  int64_t unit_ns(const cost::Work& work, int lanes) const;
  // Of that, what the work alone takes on the slowest stage: no constant, nothing exchanged.
  int64_t load_ns(const cost::Work& work) const;
  // Whether a ring is what such a micro-batch exchanges by there: others cut all that they hold.
  bool takes_ring(const cost::Work& work, int lanes) const;
  // The most that a lane has of a sequence when every chunk counts as long as the longest.
  static cost::Work fullest_share(int64_t length, int lanes, int64_t window = 0);
  cost::Work share_of(int64_t length, int lanes) const { return fullest_share(length, lanes, window_); }
  // A whole sequence's, and that of several.
  cost::Work work_of(int64_t length) const { return cost::Work::of_lane(length, length, 1, window_); }
  cost::Work work_of(std::span<const int64_t> lengths) const { return cost::Work::of(lengths, window_); }

  // The cells of `work` on a stage, forward and both gradients, without rings.
  struct StageTimes {
    int64_t forward_ns = 0;
    int64_t backward_input_ns = 0;
    int64_t backward_weight_ns = 0;
  };
  StageTimes cells_of(int stage, const cost::Work& work) const;
  // How a unit passes the stages when it waits for nothing: `work` on the fullest of its lanes.
  struct Passage {
    int64_t unit_ns = 0;       // on the slowest stage
    int64_t to_last_ns = 0;    // until the last stage can begin
    int64_t from_last_ns = 0;  // from there until its weight gradient on the first stage
    int64_t path_ns() const { return to_last_ns + from_last_ns; }
  };
  Passage passage(const cost::Work& work, int lanes) const;

  // T(l, P) of Hydraulis: forward plus backward of one sequence on the slowest stage. The constant c of a
  // micro-batch is shared by the tokens that fill it: the least that it can cost a sequence. Lanes divide it.
  // REQUIRES: length <= max_len_tokens().
  int64_t sequence_ns(int64_t length) const;
  // The same as it is published: each sequence pays a whole c (Hydraulis, appendix C.2).
  int64_t published_ns(int64_t length) const;
  // The same without c.
  int64_t work_ns(int64_t length) const { return published_ns(length) - micro_batch_ns() / scheme_.cp; }
  // Where lanes share parameters, what gathers and sums of gradients add to a pass whose slowest lane has
  // `work`, about: at its ends, and where they take longer than computing; else 0. It proves nothing.
  int64_t gathers_ns(const cost::Work& work) const;
  // c of the slowest stage: what one more micro-batch costs.
  int64_t micro_batch_ns() const;

  // What any schedule takes at least, for proofs (plan/bound.h).
  //
  // Sequences that share a stage keep it busy for no less than the sum of their floors, however they are put
  // into micro-batches: c is paid by at least tokens ÷ max_len_tokens micro-batches, and rounding three cells
  // of a micro-batch to nanoseconds takes less than two off each. With lanes that is the mean over them:
  // cutting a sequence loses no work and gives each of its lanes a micro-batch of its own.
  int64_t floor_ns(int stage, int64_t length) const;
  // The same without its share of constants, which each lane pays for every micro-batch: at least one
  // constant_ns when it runs anything.
  int64_t work_floor_ns(int stage, int64_t length) const;
  int64_t constant_ns(int stage) const;
  // The least part that the forward of any micro-batch on a stage below has of all its cells on this one, in
  // 2^-bits, but for the rounding of cells to nanoseconds. 0 for stage 0.
  int64_t forward_parts(int stage, int bits) const;
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
  // By stage.
  struct Cells {
    cost::Quadratic forward;
    cost::Quadratic backward_input;
    cost::Quadratic backward_weight;
    cost::Quadratic all;
  };
  // Of a stage.
  struct Rings {
    cost::RingTimes forward;
    cost::RingTimes backward;
  };
  void add_gathers(const cost::CostModel& cost);
  int64_t transfer_ns(int64_t tokens) const;
  // What the rings of a sequence expose on all their lanes together, at least; see ring_floor_ns.
  int64_t ring_area_ns(int stage, int64_t length, int64_t longest, int lanes) const;
  // What the cheapest exchange of so many lanes exposes, where they begin with a node.
  cost::Exchanges::Exposed exposed(int stage, const cost::Work& work, int lanes) const;
  cost::LanePlace place_of(int lanes) const {
    return cost::LanePlace::aligned(lanes, std::max(1, gpus_per_node_ / scheme_.tp));
  }

  strategy::Scheme scheme_;
  int64_t max_len_tokens_ = 0;
  int64_t lane_max_len_tokens_ = 0;
  int64_t credit_tokens_ = 0;
  int64_t util_len_tokens_ = 0;
  int64_t window_ = 0;
  int64_t gathering_ns_ = 0;             // of a pass that computes nothing
  int64_t gather_ends_ns_ = 0;           // of one that computes for as long as none takes
  std::vector<cost::Quadratic> stages_;  // those that differ
  std::vector<Cells> cells_;
  std::vector<Rings> rings_in_node_;          // by stage; none with one lane
  std::vector<Rings> rings_;                  // the same between nodes
  std::optional<cost::Exchanges> exchanges_;  // none with one lane
  int gpus_per_node_ = 1;
  cost::LinkTimes intra_;
  cost::LinkTimes inter_;
  int64_t row_bytes_ = 0;
};

}  // namespace sluice::plan
