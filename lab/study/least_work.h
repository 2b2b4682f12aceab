// A lower bound on the time of every system, however it plans: the work alone, spread evenly.
#pragma once

#include <cstdint>
#include <span>

#include "cost/cost_model.h"

namespace sluice::study {

// Each sequence counts under the scheme, of any model, that needs the least time summed over its ranks,
// divided by all ranks. No constants per micro-batch, no bubbles, no communication, and no limits on lengths
// are counted. REQUIRES: each model has a scheme; world_size >= 1.
int64_t least_work_ns(std::span<const int64_t> lengths, std::span<const cost::CostModel> models,
                      int world_size);

}  // namespace sluice::study
