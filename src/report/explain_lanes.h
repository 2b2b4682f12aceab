// The reasons for the number of lanes and for the exchange of micro-batches on several lanes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "strategy/step_plan.h"

namespace sluice::report {

// A micro-batch of several lanes. Times are of one lane on the stage that it keeps busy longest; none: such
// an exchange or number of lanes is not possible there.
struct ExplainedCut {
  int64_t longest_tokens = 0;
  int64_t sequences = 0;
  int lanes = 1;
  std::string exchange;  // "nested 4": in head groups of four lanes
  int64_t busy_ns = 0;   // its cells, with the exchange's exposed time
  // The same with one lane fewer and one more, under the exchange that is cheapest there.
  std::optional<int64_t> fewer_ns;
  std::optional<int64_t> more_ns;
  // Exposed time of each exchange; nested with the best groups.
  std::optional<int64_t> ring_ns;
  std::optional<int64_t> heads_ns;
  std::optional<int64_t> nested_ns;
};

// The micro-batches of several lanes, those with the longest sequences first.
std::vector<ExplainedCut> explain_cuts(const strategy::StepPlan& plan, const cost::CostModel& cost);

// The first few of them as a table with its heading; "" without any. Ends with a newline.
std::string cuts_text(const std::vector<ExplainedCut>& cuts);

}  // namespace sluice::report
