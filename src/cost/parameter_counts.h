// The numbers of parameters that the memory model counts.
#pragma once

#include <cstdint>

#include "cost/cost_model.h"

namespace sluice::cost {

// Elements of the largest TP shard of a bucket.
int64_t bucket_elements(const model::Program& program, const MemoryModel& memory, int bucket, int tp);

// Counts of several buckets: all parameters, the trained ones, and the coded ones in words of codes.
struct ParameterCount {
  int64_t all = 0;
  int64_t trained = 0;
  int64_t coded = 0;
};
// Elements of an operation's coded parameters once expanded, on the rank that has most of them.
int64_t expanded_elements(const model::Program& program, int64_t position, int tp, int expert_lanes);
// Parameters that an operation reads: of experts, and others.
struct OperationElements {
  ParameterCount experts;
  ParameterCount others;
};
OperationElements operation_elements(const model::Program& program, const MemoryModel& memory,
                                     int64_t position, int tp);
// Elements of an operation that travel uncoded whatever codec the others have, on any rank.
int64_t exact_elements(const model::Program& program, int64_t position);
// Counts of the whole model.
ParameterCount all_parameters(const model::Program& program, const MemoryModel& memory);

}  // namespace sluice::cost
