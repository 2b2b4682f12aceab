// Gives a system whose planner knows rings alone all exchanges: its micro-batches then choose as Sluice's
// do.
#pragma once

#include <memory>

#include "study/system.h"

namespace sluice::study {

// Each micro-batch of several lanes takes the exchange that fits and keeps its lanes waiting least
// (cost::Exchanges); lanes, order and lane parts stay the system's own.
std::unique_ptr<System> with_any_exchange(std::unique_ptr<System> system, int world_size);

}  // namespace sluice::study
