// Plans a model beside the trained one: under the run's strategies, with prices from the measurements of the
// run's model, in the memory that the other models leave.
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
  int64_t beside_bytes = 0;  // owned by a rank, of all models but this one
};

// `trained`: the run's planner. `all_beside_bytes`: the bytes that a rank owns of all models but the run's
// (session::bytes_beside); the planner's prices have subtracted them from the device. InputError naming the
// folder if no strategy of the run divides the model.
TrunkPlanning plan_beside(const plan::Planner& trained, OtherModel model, int64_t all_beside_bytes);

// The evaluations of the reference that rl.kl keeps: the run's model with its masters exchanged, planned as
// the run's model is.
TrunkPlanning reference_of(const plan::Planner& trained, int64_t all_beside_bytes);

// InfeasibleError if no strategy holds so many tokens beside the trained model.
void require_fit(const TrunkPlanning& trunk, int64_t longest_tokens);

}  // namespace sluice::session
