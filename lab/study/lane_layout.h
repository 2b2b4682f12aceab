// The lanes of systems that run one pipeline of all ranks, chosen by enumeration.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/feasible.h"
#include "study/system.h"

namespace sluice::study {

// The ranks of a lane, and the capacity of its micro-batches.
struct LaneLayout {
  int tp = 1;
  int pp = 1;
  int64_t tokens = 8192;
};

// A scheme with as many lanes as the ranks allow.
strategy::Scheme scheme_of(const LaneLayout& layout, int world_size);
// "<4,1,16>, 8192 tokens a lane"
std::string layout_text(const LaneLayout& layout, int world_size);

// Plans a batch of given lengths if the layout holds them.
using PlanOnLanes =
    std::function<base::Feasible<strategy::StepPlan>(const LaneLayout&, std::span<const int64_t> lengths)>;

// The layout whose plans of the sample batches take least time. Candidates are all TP x PP that `cost` knows,
// with at most `most_stages`, and micro-batches of all that memory holds, a half and a quarter.
// InfeasibleError if none holds the context and all samples.
LaneLayout best_lane_layout(const SystemInputs& inputs, const cost::CostModel& cost, int most_stages,
                            const PlanOnLanes& plan);

}  // namespace sluice::study
