#include "link/moved_owners.h"

#include <algorithm>

namespace sluice::link {

std::vector<Transfer> moved_owners(const model::Bucket& bucket, std::span<const int> holders, int ranks) {
  const OwnerLayout before{static_cast<int>(holders.size())};
  const OwnerLayout after{ranks};
  std::vector<Transfer> transfers;
  int destination = 0;
  for (int owner = 0; owner < before.ranks; ++owner) {
    const base::Interval slice = before.owned(bucket, owner);
    // The last destination of the previous slice may receive a part of this one, too.
    for (destination = std::max(0, destination - 1); destination < ranks; ++destination) {
      const base::Interval owned = after.owned(bucket, destination);
      const base::Interval common = base::intersect(slice, owned);
      if (!common.empty()) {
        transfers.push_back({.bucket = bucket.index,
                             .slice = common,
                             .source = holders[static_cast<size_t>(owner)],
                             .destination = destination});
      }
      if (owned.begin >= slice.end) break;
    }
  }
  return transfers;
}

}  // namespace sluice::link
