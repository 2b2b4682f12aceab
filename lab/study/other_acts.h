// The acts of models beside the trained one in simulated steps: a teacher, a critic, learnt rewards.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "graph/step_graph.h"
#include "report/step_record.h"
#include "report/time_shares.h"
#include "session/other_models.h"
#include "session/trunk_planning.h"
#include "study/system.h"

namespace sluice::study {

class OtherActs {
 public:
  // `trained`: a planner of the run's own model, from whose prices the other models' prices are derived.
  // `beside_bytes`: memory per rank for its owner slices of all other models.
  // `reference`: whether the trained model's reference is evaluated, too.
  enum class Reference : uint8_t { kNone, kEvaluated };
  OtherActs(const plan::Planner& trained, std::vector<session::OtherModel> models, Reference reference,
            int64_t beside_bytes);

  struct Act {
    report::ActRecord record;
    report::TimeShares shares;
  };
  // The acts in front of a system's update, one after the other. Teachers run under the system's own plans.
  // A critic, learnt rewards and a reference run once a step and are planned by Sluice for every system.
  // InfeasibleError if a plan cannot cut a teacher, or if no rank has room for a model. `graph`: the
  // update's, for the system's last plan; `sequences`: the whole step's.
  std::vector<Act> of(const SystemStep& step, const std::vector<strategy::Sequence>& sequences,
                      const graph::StepGraph& graph, const cost::CostModel& cost,
                      const model::ParameterTable& table);

 private:
  struct Trunk {
    explicit Trunk(session::TrunkPlanning of) : planning(std::move(of)) {}
    session::TrunkPlanning planning;
    graph::LinkPlans links;
  };
  std::vector<Act> teachers(const SystemStep& step, const graph::StepGraph& graph,
                            const cost::CostModel& cost, const model::ParameterTable& table);
  static Act planned_apart(Trunk& trunk, int64_t step, const std::vector<strategy::Sequence>& sequences);

  std::deque<Trunk> trunks_;
};

}  // namespace sluice::study
