// A system whose planner knows rings alone, given every exchange: what it would be if its micro-batches chose
// as Sluice's do.
#pragma once

#include <memory>

#include "study/system.h"

namespace sluice::study {

// Each micro-batch of several lanes takes the exchange that keeps its lanes waiting least and fits
// (cost::Exchanges); lanes, order and lane parts stay the system's own.
std::unique_ptr<System> with_any_exchange(std::unique_ptr<System> system, int world_size);

}  // namespace sluice::study
