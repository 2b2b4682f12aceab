// The subject of a comparison of systems: a machine, a model, and the batches of some steps.
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
  corpus::LengthDistribution lengths;                      // lengths of the corpus's sequences
  std::vector<std::pair<std::string, std::string>> facts;  // for people, as report::RunData has them
  base::Json made_from;                                    // arguments that reproduce the scenario
  std::shared_ptr<OtherActs> others = nullptr;             // models beside the trained one; null: none
};

// Steps [0, steps) of the inputs' sampler; systems get a stratified sample of the same corpus.
// InputError if steps < 1 or options.max_cp < 0. InfeasibleError if no
// scheme, with any number of lanes, holds the model on the cluster's devices; it names the requirement.
// REQUIRES: lengths.
Scenario scenario_of(const session::PlanningInputs& inputs, int64_t steps);

// Checks for every scenario: InputError as above.
void check_options(int64_t steps, int max_cp);
// InfeasibleError as above: otherwise nothing would report that the machine is too small for any batch. The
// message names what would hold the context.
void require_room(const cost::CostModel& cost, int world_size, int64_t context_length);

}  // namespace sluice::study
