// Small cost models for the tests of this module.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/never.h"
#include "cost/analytic.h"
#include "model/test_outline.h"
#include "plan/bound.h"

namespace sluice::plan {

// A model whose <1,1,1> holds a few thousand tokens on `device_bytes`.
inline cost::CostModel test_cost(int64_t device_bytes = 128'000'000, int64_t layers = 4) {
  const std::vector<int> degrees = {1, 2, 4};
  cost::CostModel::Options options =
      cost::analytic_options(model::test_outline(layers), {}, {.device_bytes = device_bytes}, degrees, 8);
  // A fixed figure keeps the schemes' capacities, and with them every
  // test's batches, as they are when formulas of memory are refined.
  options.memory.transient_bytes_per_token = 7424;
  return cost::CostModel(std::move(options));
}

// The bound with all proofs.
inline std::optional<Bound> lower_bound(std::span<const int64_t> lengths,
                                        std::span<const SchemeGroup> groups) {
  const FloorTable floors(lengths, groups);
  std::optional<Bound> bound = first_bound(lengths, groups, floors);
  if (bound) raise_bound(lengths, groups, floors, base::kNever, *bound);
  return bound;
}

}  // namespace sluice::plan
