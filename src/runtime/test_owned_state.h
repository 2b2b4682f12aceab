// For tests: the state that all ranks own, as a checkpoint would have it, in memory.
#pragma once

#include <array>
#include <vector>

#include "runtime/parameter_store.h"

namespace sluice::runtime {

// By bucket: masters and both moments of all its elements. REQUIRES: FP64, nothing coded.
using OwnedState = std::vector<std::array<std::vector<double>, 3>>;

// Adds this rank's part.
void record_owned(ParameterStore& store, OwnedState& state);
// Sets this rank's part, by whichever ranks it was recorded.
void set_owned(const OwnedState& state, ParameterStore& store);

}  // namespace sluice::runtime
