// Finds keys that were set but have no effect with the other keys' values.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace sluice::config {

// InputError naming the first key of [rl] or [teacher] whose value differs from the default although the
// configuration does not use the algorithm, divergence or teacher that the key belongs to.
void refuse_idle_keys(const RunConfig& config);

// One line for each set key of [rl] about text generation, in a run that generates none. Such keys may stay
// in a file whose rl.algorithm is changed.
std::vector<std::string> idle_generation_keys(const RunConfig& config);

}  // namespace sluice::config
