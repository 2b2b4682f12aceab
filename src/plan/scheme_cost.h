// What planning asks of a scheme, computed once: how long a sequence keeps its slowest stage busy, and how
// much its memory holds.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.h"

namespace sluice::plan {

class SchemeCost {
 public:
  SchemeCost(const strategy::Scheme& scheme, const cost::CostModel& cost, int world_size);

  const strategy::Scheme& scheme() const { return scheme_; }
  int64_t max_len_tokens() const { return max_len_tokens_; }  // 0: the model does not fit
  int64_t credit_tokens() const { return credit_tokens_; }
  // The shortest micro-batch that keeps its ranks busy.
  int64_t util_len_tokens() const { return util_len_tokens_; }

  // T(l, P) of Hydraulis: forward plus backward of one sequence on the slowest stage. The constant c of a
  // micro-batch is shared by the tokens that fill it: the least that it can cost a sequence.
  // REQUIRES: length <= max_len_tokens().
  int64_t sequence_ns(int64_t length) const;
  // The same as it is published: each sequence pays a whole c (Hydraulis, appendix C.2).
  int64_t published_ns(int64_t length) const;
  // c of the slowest stage: what one more micro-batch costs.
  int64_t micro_batch_ns() const;

  // What any schedule takes at least, for proofs (plan/bound.h).
  //
  // Sequences that share a stage keep it busy for no less than the sum of their floors, however they are put
  // into micro-batches: c is paid by at least tokens ÷ max_len_tokens micro-batches, and rounding three cells
  // of a micro-batch to nanoseconds takes less than two off each.
  int64_t floor_ns(int stage, int64_t length) const;
  // The same for sequences of `work` in all, which need at least one micro-batch.
  int64_t floor_ns(int stage, const cost::Work& work, int sequences) const;
  // Before a stage can begin: some micro-batch's forward on the stages below and its transfers. None has less
  // than the shortest sequence.
  int64_t fill_ns(int stage, int64_t shortest) const;
  // A micro-batch that holds a sequence of `length`: forward and input gradient on every stage, each after
  // the other, and the weight gradient of stage 0.
  int64_t path_ns(int64_t length) const;
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
  int64_t transfer_ns(int64_t tokens) const;

  strategy::Scheme scheme_;
  int64_t max_len_tokens_ = 0;
  int64_t credit_tokens_ = 0;
  int64_t util_len_tokens_ = 0;
  std::vector<cost::Quadratic> stages_;  // those that differ
  std::vector<Cells> cells_;
  cost::LinkTimes intra_;
  cost::LinkTimes inter_;
  int64_t row_bytes_ = 0;
};

}  // namespace sluice::plan
