// Transfers from one owner layout to another, when the number of ranks changes.
#pragma once

#include <span>
#include <vector>

#include "link/route.h"

namespace sluice::link {

// The transfers of one bucket from the owner layout of holders.size() ranks to the one of `ranks` ranks. The
// slice of former owner q lies at rank holders[q]. No transferred slice spans two former owners. The order is
// that of a pull's transfers, so pull_slices() accepts them.
std::vector<Transfer> moved_owners(const model::Bucket& bucket, std::span<const int> holders, int ranks);

}  // namespace sluice::link
