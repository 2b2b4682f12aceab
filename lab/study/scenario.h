// What systems are compared on: a machine, a model, and the batches of some steps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "corpus/lengths.h"
#include "corpus/sampler.h"
#include "model/parameters.h"
#include "session/planning_inputs.h"
#include "study/other_acts.h"
#include "study/system.h"

namespace sluice::study {

struct Scenario {
  SystemInputs inputs;
  model::ParameterTable table;
  std::vector<corpus::Batch> batches;                      // in step order
  corpus::LengthDistribution lengths;                      // of the corpus's sequences
  std::vector<std::pair<std::string, std::string>> facts;  // for people, as report::RunData has them
  base::Json made_from;                                    // what to give again for the same
  std::shared_ptr<OtherActs> others = nullptr;  // of models beside the trained one; null: there are none
};

// Steps [0, steps) of what the inputs' sampler draws; systems see a stratified sample of the same corpus.
// `max_cp`: most lanes of a pipeline; 0: all ranks'. InputError when steps < 1 or max_cp < 0; InfeasibleError
// when no scheme of any lanes holds the model on the cluster's devices, naming what it needs. REQUIRES:
// lengths.
Scenario scenario_of(const session::PlanningInputs& inputs, int64_t steps, int max_cp);

// What every scenario is checked for: InputError as above.
void check_options(int64_t steps, int max_cp);
// InfeasibleError as above: nothing else would be said about a machine that is too small for any batch. It
// names what would hold the context.
void require_room(const cost::CostModel& cost, int world_size, int64_t context_length);

}  // namespace sluice::study
