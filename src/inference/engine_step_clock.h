// The time that engine steps take in a pipeline. All stages advance together in micro-steps: an engine step
// enters the first stage, and every other stage computes the engine step that the stage before it had.
#pragma once

#include <cstdint>
#include <deque>

#include "cost/cost_model.h"
#include "strategy/strategy.h"

namespace sluice::inference {

class EngineStepClock {
 public:
  // `level`: the level of the topology that the pipeline's ranks span. Each lane computes
  // its part of the rows (all, if they are few) and attends to its part of the keys.
  // Queries, keys and values go to all lanes and results come back (layers/cached_lanes.h);
  // nothing hides this. REQUIRES: cost.decodes(scheme); `cost` outlives the clock.
  EngineStepClock(const cost::CostModel& cost, const strategy::Scheme& scheme, int level);
  // "In a node" would be level 1, the links between nodes.
  EngineStepClock(const cost::CostModel& cost, const strategy::Scheme& scheme, bool) = delete;

  // Advances by `pass.engine_steps` micro-steps, in which the first stage
  // computes this engine step (it may have no rows), or that many equal ones.
  void add(const cost::DecodeWork& pass);
  // The time until the last engine step has left the first stage.
  int64_t ns() const { return ns_; }

 private:
  cost::Wide of_stage(int stage, const cost::DecodeWork& pass) const;
  int64_t handed_on_ns() const;

  const cost::CostModel& cost_;
  strategy::Scheme scheme_;
  int level_;
  std::deque<cost::DecodeWork> passes_;  // by the stage that computes it
  int64_t ns_ = 0;
};

}  // namespace sluice::inference
