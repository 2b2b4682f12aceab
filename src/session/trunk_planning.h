// How a model beside the one that a run trains is planned: under the run's strategies, priced as the run's
// model was measured, in the memory that the others leave.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/feasible.h"
#include "graph/step_graph.h"
#include "model/parameters.h"
#include "plan/planner.h"
#include "session/other_models.h"

namespace sluice::session {

struct TrunkPlanning {
  OtherModel model;
  model::ParameterTable table;
  plan::Planner planner;
  int64_t beside_bytes = 0;  // that a rank owns of all models but this one
};

// `trained`: the run's planner. `all_beside_bytes`: what a rank owns of all models but the run's
// (session::bytes_beside), which is taken off the device in the planner's prices. InputError naming the folder
// where no strategy of the run cuts the model.
TrunkPlanning plan_beside(const plan::Planner& trained, OtherModel model, int64_t all_beside_bytes);

// InfeasibleError where no strategy holds so many tokens beside the trained model.
void require_fit(const TrunkPlanning& trunk, int64_t longest_tokens);

}  // namespace sluice::session
