// The most time that a stage of one lane can compute by a given time, whatever its
// micro-batches are: few of them make it wait for the first ones, many cost constants.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/scheme_cost.h"

namespace sluice::plan {

// Let V micro-batches take u_1 … u_V on the stage, in the order of injection, with n stages
// below it. Their forwards on each stage below take at least α·u. The stage can begin the
// j-th only after the first stage has done j forwards and each stage between has done one:
//   M >= α·(u_1 + … + u_j) + (n − 1)·α·u_j + u_j + … + u_V.
// Let U be the sum of all and r = (1 + (n − 1)·α) ÷ (n·α). These bounds, j = 1 … V, add up to
//   M >= U · (1 + 1 ÷ B_V),   B_V = (1 + r + … + r^(V − 1)) ÷ (n·α).
// The proof: with I = M − U and S_j = u_1 + … + u_j the bounds say
// S_j <= I ÷ (n·α) + r·S_(j − 1). If no micro-batch takes more than m, then S_j <= S_(j − 1) + m,
// too. For each k <= V, let the first k grow by the first rule and the others by m each:
//   U <= B_k·I + (V − k)·m,   hence U <= (B_k·M + (V − k)·m) ÷ (1 + B_k).
// Cells of rings also wait for other lanes and for transfers. u_j counts only what
// the lane computes, and no cell takes less, so all this holds for each lane.
class Bubble {
 public:
  // `lengths`, descending: the sequences that the stage's micro-batches are made of.
  Bubble(const SchemeCost& scheme, int stage, std::span<const int64_t> lengths);

  struct Most {
    int64_t busy_ns = 0;
    int64_t micro_batches = 1;
  };
  // The maximum over V >= 1 of the stage's busy time by `end_ns` minus V·constant_ns.
  // At least 0. Grows no faster than end_ns does. REQUIRES: constant_ns >= 0.
  Most most(int64_t end_ns, int64_t constant_ns) const;

 private:
  int64_t stages_below_ = 0;
  int64_t fullest_ns_ = 0;            // m
  std::vector<int64_t> busy_parts_;   // by k: B_k ÷ (1 + B_k); 1 for more
  std::vector<int64_t> spare_parts_;  // by k: 1 ÷ (1 + B_k)
};

}  // namespace sluice::plan
