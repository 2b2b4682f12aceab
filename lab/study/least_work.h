// What no system can be faster than, however it plans: the work alone, spread evenly.
#pragma once

#include <cstdint>
#include <span>

#include "cost/cost_model.h"

namespace sluice::study {

// Each sequence under the scheme of any of the models that spends the least time of all its ranks on it, over
// all ranks at once: no constants a micro-batch, no bubbles, no communication, and as if every scheme held
// every length. REQUIRES: each model has a scheme; world_size >= 1.
int64_t least_work_ns(std::span<const int64_t> lengths, std::span<const cost::CostModel> models,
                      int world_size);

}  // namespace sluice::study
