// Keys that are given and have no effect beside the others: who gives one expects something of it.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace sluice::config {

// InputError naming the first key of [rl] or [teacher] that has another value than when it is left out, but
// belongs to an algorithm, a divergence or a teacher that the configuration does not ask for.
void refuse_idle_keys(const RunConfig& config);

// A line for each key of [rl] that tells how text is generated, in a run that generates none: such keys may
// stay in a file whose rl.algorithm is changed.
std::vector<std::string> idle_generation_keys(const RunConfig& config);

}  // namespace sluice::config
