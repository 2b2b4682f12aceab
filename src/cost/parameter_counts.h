// How many parameters the memory model counts.
#pragma once

#include <cstdint>

#include "cost/cost_model.h"

namespace sluice::cost {

// Of the largest TP shard of a bucket.
int64_t bucket_elements(const model::Program& program, const MemoryModel& memory, int bucket, int tp);

// Of several buckets, of those of them that are trained, and of those that are coded, in words of codes.
struct ParameterCount {
  int64_t all = 0;
  int64_t trained = 0;
  int64_t coded = 0;
};
// Of an operation's coded parameters, expanded, on the rank that has most of them.
int64_t expanded_elements(const model::Program& program, int64_t position, int tp, int expert_lanes);
// Of those that an operation reads: of experts, and others.
struct OperationElements {
  ParameterCount experts;
  ParameterCount others;
};
OperationElements operation_elements(const model::Program& program, const MemoryModel& memory,
                                     int64_t position, int tp);
// Of an operation's parameters, those that travel as they are whatever codec the others have, on any rank.
int64_t exact_elements(const model::Program& program, int64_t position);
// Of the whole model.
ParameterCount all_parameters(const model::Program& program, const MemoryModel& memory);

}  // namespace sluice::cost
