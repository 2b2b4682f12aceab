// The size of a rank's snapshot for later memberships. It has trained parameters only: frozen ones do not
// change, so ranks read them again from their source.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cost/snapshot_cost.h"
#include "link/layout.h"
#include "run/slice_snapshot.h"
#include "runtime/parameter_store.h"

namespace sluice::run {

// Numbers kept for each parameter of a bucket.
inline int64_t snapshot_numbers(const model::Bucket& bucket) {
  return bucket.trained ? cost::owner_numbers(true) : 0;
}

inline bool has_frozen(const model::ParameterTable& table) {
  return std::ranges::any_of(table.buckets, [](const model::Bucket& bucket) { return !bucket.trained; });
}

// Bytes of one rank's slices, with the sums of pulled differences if the options pull by differences.
inline int64_t snapshot_bytes(const model::ParameterTable& table,
                              const runtime::ParameterStore::Options& options, int world_size, int rank) {
  int64_t elements = 0;
  for (const model::Bucket& bucket : table.buckets)
    elements += snapshot_numbers(bucket) * link::OwnerLayout{world_size}.owned(bucket, rank).size();
  return elements * comm::size_of(options.precision.master()) +
         SliceSnapshot::followed_bytes(table, options, world_size, rank);
}

}  // namespace sluice::run
