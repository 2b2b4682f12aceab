#include "cost/loss_share.h"

#include "base/error.h"
#include "base/text.h"

namespace sluice::cost {

CostModel::Options with_loss_share(CostModel::Options options, int64_t loss_ppm) {
  constexpr int64_t kAll = 1'000'000;
  SLUICE_ASSERT(loss_ppm > 0 && loss_ppm <= kAll, base::text(loss_ppm, " ppm"));
  for (auto& [tp, kinds] : options.kinds_by_tp) {
    Quadratic& head = kinds.back().times.forward;
    const int64_t constant_ns = head.c_ns;
    head = head.share(loss_ppm, kAll);
    head.c_ns = constant_ns;
  }
  return options;
}

}  // namespace sluice::cost
