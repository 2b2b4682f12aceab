// Planning from planning inputs: strategies proposed for them, and a planner of theirs.
#pragma once

#include <cstdint>
#include <vector>

#include "config/planning_inputs.h"
#include "config/run_config.h"
#include "plan/planner.h"
#include "plan/proposal.h"

namespace sluice::config {

struct ProposingOptions {
  Method method = Method::kOurs;  // or kPaper
  int max_strategies = 8;
  int max_cp = 0;  // most lanes of a pipeline; 0: kUsualMaxCp, or 1 with kPaper, which knows none
};

// options.max_cp with its default filled in.
int max_cp_of(const ProposingOptions& options);

struct Proposed {
  std::vector<plan::Proposal> strategies;
  std::vector<std::vector<int64_t>> sample_batches;  // that they were judged by
};

// Strategies for batches such as the inputs' sampler draws. InputError when max_strategies < 1 or max_cp < 0,
// kPaper is given lanes, or the method is kExact; throws as plan::propose. REQUIRES: inputs.lengths.
Proposed propose_for(const PlanningInputs& inputs, const ProposingOptions& options);

// The planner of inputs.strategies. Throws as plan::Planner.
plan::Planner planner_of(const PlanningInputs& inputs, Method method);

}  // namespace sluice::config
