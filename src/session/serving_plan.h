// `plan --serving`: the layouts in which a cluster can serve a model, and their tokens per second.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "inference/serving.h"
#include "session/planning_inputs.h"

namespace sluice::session {

struct ServingRow {
  // This program generates with kPipelines (rl.rollout_strategy, --strategy). Layouts that divide experts
  // over lanes, or separate experts from attention, are only planned.
  enum class LayoutKind : uint8_t { kPipelines, kExpertParallel, kDisaggregated };
  LayoutKind layout_kind = LayoutKind::kPipelines;
  std::string layout;
  int64_t sequences = 0;       // running on all ranks; 0: none is fast enough, or fits
  int64_t engine_step_ns = 0;  // between a sequence's tokens; of one sequence alone if `sequences` is 0
  double tokens_per_s = 0;
  int64_t bytes = 0;  // on the fullest rank

  std::string fault(const inference::Demand& demand, int64_t device_bytes) const;
};

// The most tokens per second first: all pipelines, and the best few of each kind of expert layout.
std::vector<ServingRow> serving_rows(const PlanningInputs& inputs, const inference::Demand& demand);

base::Json to_json(const ServingRow& row, int gpus);
const char* name_of(ServingRow::LayoutKind of);

}  // namespace sluice::session
