// Megatron-LM with dynamic context parallelism: one pipeline of all ranks, on whose lanes each sequence takes
// the power of two that its length needs (published/dynamic_cp.h). TP, PP and the tokens of a micro-batch are
// the best by enumeration. Plain 1F1B; there is no barrier between rounds, which favours it over the
// framework.
#pragma once

#include <memory>

#include "study/system.h"

namespace sluice::study {

std::unique_ptr<System> make_megatron_dcp(const SystemInputs& inputs);

}  // namespace sluice::study
