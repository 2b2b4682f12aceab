// A training system in the study. It gets machine, model and corpus once, chooses its configuration, and then
// returns for every batch how it would run the batch. Sluice itself is a system, and so is every baseline,
// each in its own file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "report/explain_compression.h"
#include "session/candidates.h"
#include "strategy/cluster.h"
#include "strategy/step_plan.h"

namespace sluice::study {

// The inputs of every system. All systems get the same sample of the corpus, and none gets the batches of the
// evaluation.
struct SystemInputs {
  strategy::Cluster cluster;
  int world_size = 1;
  cost::CostModel cost;
  int64_t context_length = 0;                        // tokens
  int max_cp = 8;                                    // maximum lanes of a pipeline, if a system has lanes
  std::vector<std::vector<int64_t>> sample_batches;  // lengths by batch, for choosing a configuration
  uint64_t seed = 1;
  // Sluice's own, but for what stands here; max_cp 0: as above.
  plan::PlannerOptions planner = {.max_cp = 0, .max_fsdp = 0};
  std::vector<strategy::Device> devices = {};  // by rank, known to Sluice's plans; empty: all alike
};

// One batch, as a system runs it. If several strategies run one after another in a step (HotSPa, FlexSP),
// each has its own plan for its own sequences; all plans but the last count in time only.
struct SystemStep {
  strategy::StepPlan plan;                    // the last one's
  std::vector<strategy::StepPlan> earlier{};  // in order
  int64_t before_ns = 0;  // spent before the step graph starts: earlier strategies' schedules, and switches
  int64_t switch_ns = 0;  // part of before_ns: moving between layouts
  std::string fallback;   // reason if the plan is not the planner's; empty: it is
};

class System {
 public:
  virtual ~System() = default;

  // The choice in the field's notation, for example "DP2 TP4 PP2".
  virtual std::string configuration() const = 0;
  // The costs that time its step graphs: the inputs' model, or one with its own communication or memory.
  virtual const cost::CostModel& cost() const = 0;
  // Steps are requested in ascending order. InfeasibleError if the batch does not fit.
  virtual SystemStep step(int64_t step, const std::vector<strategy::Sequence>& sequences) = 0;
  // The gain from fewer bits between ranks in one of its steps; empty if it knows no codecs.
  virtual std::vector<report::ExplainedCompression> wire(const SystemStep&) const { return {}; }
};

}  // namespace sluice::study
