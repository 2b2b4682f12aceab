// How micro-batches of a pipeline grow when its last stage is to wait least for the first of them.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/scheme_cost.h"

namespace sluice::plan {

// What plan/bubble.h proves says how sizes u_j (times on the last stage) can grow while that stage idles for
// I in all, with n stages below it and forwards that take a part α of a micro-batch's time:
//   u_j <= I ÷ (n·α) + (1 − α) ÷ (n·α) · (u_1 + … + u_(j − 1)).
// Here they do, up to a largest one; deferred weight gradients fill the drain, so they need not fall again.
class Growth {
 public:
  // Micro-batches that share `work_ns`, constants not counted, none with more than `most_ns` of it.
  // REQUIRES: pp > 1; most_ns > 0.
  Growth(const SchemeCost& scheme, int64_t work_ns, int64_t most_ns);

  // Their sizes without constants, at least 1, in the order of injection; the largest exceed most_ns where
  // so few could not share the work otherwise. REQUIRES: count >= 1.
  std::vector<int64_t> sizes_ns(int count) const;
  // The first count in [fewest, most] that has less of constants and idle time than the next.
  int best_count(int fewest, int most) const;

 private:
  int64_t full_ns(int count) const;
  int64_t idle_ns(int count) const;
  int64_t sum_ns(int64_t idle_ns, int count) const;
  int64_t next_ns(int64_t idle_ns, int64_t sum_ns) const;

  int64_t work_ns_, most_ns_, constant_ns_;
  int64_t below_parts_;  // n·α
  int64_t rest_parts_;   // 1 − α
};

}  // namespace sluice::plan
