// Which layouts a cluster serves a model with, and how many tokens a second they say: `plan --serving`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "inference/serving.h"
#include "session/planning_inputs.h"

namespace sluice::session {

struct ServingRow {
  // Pipelines generate with this program (rl.rollout_strategy, --strategy). Lanes that divide experts, and
  // experts apart from attention, are only planned.
  enum class LayoutKind : uint8_t { kPipelines, kExpertParallel, kDisaggregated };
  LayoutKind layout_kind = LayoutKind::kPipelines;
  std::string layout;
  int64_t sequences = 0;       // under way on all ranks; 0: none in time, or in memory
  int64_t engine_step_ns = 0;  // between a text's tokens; of one text alone where there are none
  double tokens_per_s = 0;
  int64_t bytes = 0;  // of the fullest rank

  std::string fault(const inference::Demand& demand, int64_t device_bytes) const;
};

// The most tokens a second first: all pipelines, and of experts' layouts the best few of each kind.
std::vector<ServingRow> serving_rows(const PlanningInputs& inputs, const inference::Demand& demand);

base::Json to_json(const ServingRow& row, int gpus);
const char* name_of(ServingRow::LayoutKind of);

}  // namespace sluice::session
