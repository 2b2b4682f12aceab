// What of this machine a rank may use, and in which number formats it computes.
#pragma once

#include <cstdint>
#include <string>

#include "config/run_config.h"
#include "runtime/precision.h"

namespace sluice::train {

// Of a configuration's train.dtype.
runtime::Precision precision_of(const std::string& dtype);

// Compute threads of one of `local_ranks` ranks on this machine: `configured`, or when 0 its share of the
// cores.
int compute_threads(int configured, int local_ranks);

// What one of `local_ranks` ranks may use, margin taken off. InfeasibleError when nothing is left.
int64_t usable_memory_bytes(const config::MemoryConfig& memory, int local_ranks);

}  // namespace sluice::train
