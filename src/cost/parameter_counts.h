// How many parameters the memory model counts.
#pragma once

#include <cstdint>

#include "cost/cost_model.h"

namespace sluice::cost {

// Of the largest TP shard of an operation's own bucket, of all its parameters, those that it shares with
// another operation among them, and of the whole model.
int64_t bucket_elements(const model::Program& program, const MemoryModel& memory, int64_t position, int tp);
int64_t operation_elements(const model::Program& program, const MemoryModel& memory, int64_t position,
                           int tp);
int64_t all_parameters(const model::Program& program, const MemoryModel& memory);

}  // namespace sluice::cost
