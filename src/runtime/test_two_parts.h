// A run that goes on, on other ranks, from the state that owners have. Header-only.
#pragma once

#include <cstdint>

#include "runtime/test_cluster.h"

namespace sluice::runtime {

// The first `lost` steps as `before` says, the others up to `steps` as `behind` says, as one record.
inline RunRecord run_in_two_parts(RunOptions before, RunOptions behind, int64_t lost, int64_t steps) {
  before.steps = lost;
  RunRecord all = run_in_process(before);
  behind.steps = steps;
  behind.first_step = lost;
  behind.from = &all.owned;
  const RunRecord rest = run_in_process(behind);
  all.losses.insert(all.losses.end(), rest.losses.begin(), rest.losses.end());
  all.gradient_norms.insert(all.gradient_norms.end(), rest.gradient_norms.begin(), rest.gradient_norms.end());
  all.evaluated_losses.insert(all.evaluated_losses.end(), rest.evaluated_losses.begin(),
                              rest.evaluated_losses.end());
  all.parameters = rest.parameters;
  return all;
}

}  // namespace sluice::runtime
