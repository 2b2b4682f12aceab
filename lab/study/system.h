// A training system as the study sees it: told once about machine, model and corpus, it chooses its
// configuration, and then says of every batch how it would run it. Sluice itself is one, every baseline
// another, each in a file of its own.
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

// What every system is told. All of them see the same sample of the corpus, and none the batches that it is
// judged by.
struct SystemInputs {
  strategy::Cluster cluster;
  int world_size = 1;
  cost::CostModel cost;
  int64_t context_length = 0;                        // tokens
  int max_cp = 8;                                    // most lanes of a pipeline, where a system has lanes
  std::vector<std::vector<int64_t>> sample_batches;  // lengths by batch, to choose a configuration with
  uint64_t seed = 1;
  session::PlannerChoices choices;             // Sluice's own; max_cp 0: as above
  std::vector<strategy::Device> devices = {};  // by rank, which Sluice's plans know; empty: alike
};

// One batch, as a system runs it. Where several strategies run one after another in a step (HotSPa, FlexSP),
// each has a plan of its own, with its sequences alone; all but the last are counted in time.
struct SystemStep {
  strategy::StepPlan plan;                    // the last one's
  std::vector<strategy::StepPlan> earlier{};  // in order
  int64_t before_ns = 0;  // spent before the step graph starts: earlier strategies' schedules, and switches
  int64_t switch_ns = 0;  // of before_ns, what moving between layouts takes
  std::string fallback;   // why the plan is not the planner's; empty: it is
};

class System {
 public:
  virtual ~System() = default;

  // The choice in the field's notation, for example "DP2 TP4 PP2".
  virtual std::string configuration() const = 0;
  // What its step graphs are timed with: the inputs' model, or one with its own communication or memory.
  virtual const cost::CostModel& cost() const = 0;
  // Steps are asked for in ascending order. Throws base::InfeasibleError when the batch does not fit.
  virtual SystemStep step(int64_t step, const std::vector<strategy::Sequence>& sequences) = 0;
  // What fewer bits between ranks would be worth to a step of its; none where it knows no codecs.
  virtual std::vector<report::ExplainedCompression> wire(const SystemStep&) const { return {}; }
};

}  // namespace sluice::study
