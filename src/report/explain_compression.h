// The worth of fewer bits between ranks to a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/planner.h"
#include "strategy/step_plan.h"

namespace sluice::report {

struct ExplainedCompression {
  std::string setting;  // a setting of [link] as one writes it; "": the step as it is
  int64_t step_ns = 0;  // by the clock
};

// The step as it is, then planned with each other setting that changes its time, shortest first. Empty for a
// plan of a single rank. REQUIRES: a plan that `planner` made.
std::vector<ExplainedCompression> explain_compression(const strategy::StepPlan& plan,
                                                      const plan::Planner& planner);
std::string compression_text(const std::vector<ExplainedCompression>& wire);

}  // namespace sluice::report
