// Small cost models for the tests of this module.
#pragma once

#include <vector>

#include "cost/analytic.h"
#include "model/test_outline.h"

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

}  // namespace sluice::plan
