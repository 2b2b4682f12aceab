// The lanes of systems that run one pipeline of all ranks, chosen by enumeration.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/feasible.h"
#include "study/system.h"

namespace sluice::study {

// Ranks of a lane, and what one of its micro-batches holds.
struct LaneLayout {
  int tp = 1;
  int pp = 1;
  int64_t tokens = 8192;
};

// With as many lanes as the ranks give.
strategy::Scheme scheme_of(const LaneLayout& layout, int world_size);
// "<4,1,16>, 8192 tokens a lane"
std::string layout_text(const LaneLayout& layout, int world_size);

// The plan of a batch of such lengths, where the layout holds them.
using PlanOnLanes =
    std::function<base::Feasible<strategy::StepPlan>(const LaneLayout&, std::span<const int64_t> lengths)>;

// Of all TP x PP that `cost` knows, with at most `most_stages`, and micro-batches of what memory holds, a
// half and a quarter of it: the layout whose plans of the sample batches take least. InfeasibleError when
// none holds the context and all samples.
LaneLayout best_lane_layout(const SystemInputs& inputs, const cost::CostModel& cost, int most_stages,
                            const PlanOnLanes& plan);

}  // namespace sluice::study
