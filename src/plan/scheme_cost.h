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

  // T(l, P) of Hydraulis: forward plus backward of one sequence on the slowest stage. The constant c of a
  // micro-batch is shared by the tokens that fill it: the least that it can cost a sequence.
  // REQUIRES: length <= max_len_tokens().
  int64_t sequence_ns(int64_t length) const;
  // c of the slowest stage: what one more micro-batch costs.
  int64_t micro_batch_ns() const;

 private:
  strategy::Scheme scheme_;
  int64_t max_len_tokens_ = 0;
  int64_t credit_tokens_ = 0;
  std::vector<cost::Quadratic> stages_;  // those that differ
};

}  // namespace sluice::plan
