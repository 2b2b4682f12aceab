// Why micro-batches of several lanes have as many as they have, and exchange as they do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "strategy/step_plan.h"

namespace sluice::report {

// A micro-batch of several lanes. Times are of one lane on the stage that it keeps busy longest; none: no
// such exchange or number of lanes can be had there.
struct ExplainedCut {
  int64_t longest_tokens = 0;
  int64_t sequences = 0;
  int lanes = 1;
  std::string exchange;  // "nested 4": in head groups of four lanes
  int64_t busy_ns = 0;   // its cells, with what the exchange exposes of them
  // The same on one lane fewer and one more, with the exchange that is cheapest there.
  std::optional<int64_t> fewer_ns;
  std::optional<int64_t> more_ns;
  // What each exchange exposes; nested in the best groups.
  std::optional<int64_t> ring_ns;
  std::optional<int64_t> heads_ns;
  std::optional<int64_t> nested_ns;
};

// The micro-batches of several lanes, those with the longest sequences first.
std::vector<ExplainedCut> explain_cuts(const strategy::StepPlan& plan, const cost::CostModel& cost);

// The first few of them as a table with its heading; "" without any. Ends with a newline.
std::string cuts_text(const std::vector<ExplainedCut>& cuts);

}  // namespace sluice::report
