// published/partition.h's problem as a mixed-integer program for CBC.
#pragma once

#include "published/partition.h"

namespace sluice::tests {

// A PartitionSolver. Works within 2^40: CBC computes in floating point. The node budget is CBC's own nodes.
published::Partition cbc_partition(std::span<const published::PartitionItem> items,
                                   const published::PartitionOptions& options);

}  // namespace sluice::tests
