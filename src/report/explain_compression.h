// What fewer bits between ranks would be worth to a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/planner.h"
#include "strategy/step_plan.h"

namespace sluice::report {

struct ExplainedCompression {
  std::string setting;  // of [link], as it would be written; "": as it is
  int64_t step_ns = 0;  // by the clock
};

// The step as it is, then planned with each setting that it does not have and that changes what it takes,
// shortest first. Empty where it has a single rank. REQUIRES: a plan that `planner` made.
std::vector<ExplainedCompression> explain_compression(const strategy::StepPlan& plan,
                                                      const plan::Planner& planner);
std::string compression_text(const std::vector<ExplainedCompression>& wire);

}  // namespace sluice::report
