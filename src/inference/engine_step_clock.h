// When passes of a pipeline that says texts have gone through it. Its stages take turns together: in each one
// a pass enters the first, and every stage has the one that the stage before it had.
#pragma once

#include <cstdint>
#include <deque>

#include "cost/cost_model.h"
#include "strategy/strategy.h"

namespace sluice::inference {

class EngineStepClock {
 public:
  // `level`: of the topology, on which the pipeline's ranks meet. Of lanes each takes its part of rows,
  // unless they are few, and of keys; queries, keys and values go to all of them, and what they find comes
  // back (layers/cached_lanes.h), which nothing hides. REQUIRES: cost.decodes(scheme); the model outlives it.
  EngineStepClock(const cost::CostModel& cost, const strategy::Scheme& scheme, int level);

  // Takes a turn with the pass in front, which may have no rows; or several, with passes that are alike, or
  // alike each to the one a round of stages before it.
  void add(const cost::DecodeWork& pass);
  // Until the last one has left the first stage.
  int64_t ns() const { return ns_; }

 private:
  cost::Wide of_stage(int stage, const cost::DecodeWork& pass) const;
  int64_t handed_on_ns() const;

  const cost::CostModel& cost_;
  strategy::Scheme scheme_;
  int level_;
  std::deque<cost::DecodeWork> passes_;  // by the stage that has it
  int64_t ns_ = 0;
};

}  // namespace sluice::inference
