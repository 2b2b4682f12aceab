// The reasons for a step plan, in words and numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/planner.h"
#include "report/explain_compression.h"
#include "report/explain_lanes.h"
#include "strategy/step_plan.h"

namespace sluice::report {

// A candidate strategy planned on its own for the same batch.
struct ExplainedCandidate {
  std::string strategy;
  int64_t max_len_tokens = 0;
  // The step's, as Explanation::estimated_ns. None: the strategy does not hold the batch's longest sequence
  // under the memory policy that the planner takes for the batch.
  std::optional<int64_t> estimated_ns;
  int64_t lower_bound_ns = 0;  // the step's; 0: not known
};

// A pipeline of the plan, by the schedule that will run.
struct ExplainedPipeline {
  std::string scheme;
  int first_rank = 0;
  int last_rank = 0;
  int64_t end_ns = 0;
  int stages = 1;
  int busiest_stage = 0;
  int64_t busy_ns = 0;  // computation of that stage's busiest lane
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t lane_parts = 0;
  int64_t longest_tokens = 0;   // its longest sequence
  int64_t longest_path_ns = 0;  // its micro-batch alone, through all stages and back
};

struct Explanation {
  int64_t step = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t median_tokens = 0;
  int64_t longest_tokens = 0;
  int64_t branches = 0;  // in all sequences
  std::string strategy;
  plan::Selection selection = plan::Selection::kBest;
  int64_t schedule_ns = 0;     // the longest pipeline's, without pull, push and update
  int64_t estimated_ns = 0;    // with them, if the planner chooses by them
  int64_t lower_bound_ns = 0;  // the schedule's; 0: not known
  int64_t gap_ppm = 0;
  std::optional<strategy::Proof> bounded_by;      // StepPlan::bounded_by
  std::vector<ExplainedCandidate> candidates;     // fastest first; those that don't hold the batch last
  std::vector<ExplainedPipeline> pipelines;       // last to end first; empty ones too
  std::vector<ExplainedCut> cuts;                 // micro-batches of several lanes
  std::vector<ExplainedCompression> compression;  // in plans of several ranks
};

// Plans every candidate of the planner on its own, which takes several times as long as the plan did.
// REQUIRES: a plan that `planner` made, with at least one sequence.
Explanation explain(const strategy::StepPlan& plan, const plan::Planner& planner);

// Paragraphs and a table for people. Ends with a newline.
std::string explanation_text(const Explanation& explanation);

}  // namespace sluice::report
