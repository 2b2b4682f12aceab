// plan/published/partition.h's problem as a mixed-integer program for CBC.
#pragma once

#include "plan/published/partition.h"

namespace sluice::tests {

// A PartitionSolver. Works within 2^40: CBC computes in floating point. The node budget is CBC's own nodes.
plan::Partition cbc_partition(std::span<const plan::PartitionItem> items,
                              const plan::PartitionOptions& options);

}  // namespace sluice::tests
