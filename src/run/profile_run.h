// One rank of `sluice profile`, which measures where training would begin.
#pragma once

#include <cstdint>

#include "profile/probe.h"
#include "run/run_options.h"

namespace sluice::run {

// Collective over all ranks of the launch. Measures the configuration's model on its device with its threads,
// for the TP degrees that its strategies use or that "auto" may propose, at profile_lengths of its context.
// `budget_ns` is the target for the whole measurement. Throws as Trainer.
profile::ProbeResult profile_run(const RunOptions& options, int64_t budget_ns);

}  // namespace sluice::run
