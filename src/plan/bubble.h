// How long a stage of one lane can work at most by a given time, whatever its micro-batches are: few of them
// make it wait for the first ones, many cost constants.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/scheme_cost.h"

namespace sluice::plan {

// With V micro-batches, in the order of injection, of u_1 … u_V on the stage, n stages below it, and forwards
// there of at least α·u each, the stage cannot begin with the j-th before the first stage has done j forwards
// and those between one each:
//   M >= α·(u_1 + … + u_j) + (n − 1)·α·u_j + u_j + … + u_V.
// With U the sum of all and r = (1 + (n − 1)·α) ÷ (n·α) these bounds, j = 1 … V, add up to
//   M >= U · (1 + 1 ÷ B_V),   B_V = (1 + r + … + r^(V − 1)) ÷ (n·α).
// The proof: with I = M − U and S_j = u_1 + … + u_j they say S_j <= I ÷ (n·α) + r·S_(j − 1). Where no
// micro-batch takes more than m, S_j <= S_(j − 1) + m too, so that for each k <= V, the first k growing so
// and the others m each,
//   U <= B_k·I + (V − k)·m,   hence U <= (B_k·M + (V − k)·m) ÷ (1 + B_k).
// Cells of rings also wait for other lanes and for transfers. u_j counts what the lane computes, no cell
// takes less, so all this holds for each lane.
class Bubble {
 public:
  // `lengths`, descending, are the sequences that its micro-batches are made of.
  Bubble(const SchemeCost& scheme, int stage, std::span<const int64_t> lengths);

  struct Most {
    int64_t busy_ns = 0;
    int64_t micro_batches = 1;
  };
  // The most over V >= 1 of the stage's busy time by `end_ns` less V times `constant_ns`. At least 0.
  // Grows with end_ns no faster than that does. REQUIRES: constant_ns >= 0.
  Most most(int64_t end_ns, int64_t constant_ns) const;

 private:
  int64_t stages_below_ = 0;
  int64_t fullest_ns_ = 0;            // m
  std::vector<int64_t> busy_parts_;   // by k: B_k ÷ (1 + B_k); 1 for more
  std::vector<int64_t> spare_parts_;  // by k: 1 ÷ (1 + B_k)
};

}  // namespace sluice::plan
