// From one owner layout to another: what moves when the number of ranks changes.
#pragma once

#include <span>
#include <vector>

#include "link/route.h"

namespace sluice::link {

// The transfers of one bucket from the owner layout of holders.size() ranks, whose rank q's slice lies at
// rank holders[q], to that of `ranks` ranks. No slice spans two of the former owners'. In the order of a
// pull's transfers, so that pull_slices() takes them.
std::vector<Transfer> moved_owners(const model::Bucket& bucket, std::span<const int> holders, int ranks);

}  // namespace sluice::link
