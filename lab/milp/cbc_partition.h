// The problem of published/partition.h as a mixed-integer program for CBC.
#pragma once

#include "published/partition.h"

namespace sluice::tests {

// A PartitionSolver. REQUIRES: numbers below 2^40, since CBC uses floating point. Nodes are CBC's own.
published::Partition cbc_partition(std::span<const published::PartitionItem> items,
                                   const published::PartitionOptions& options);

}  // namespace sluice::tests
