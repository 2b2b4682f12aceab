#include "cost/loss_share.h"

#include "base/error.h"
#include "base/text.h"
#include "model/kind.h"

namespace sluice::cost {

namespace {

constexpr int64_t kAll = 1'000'000;

// The share of the head's time if `loss_ppm` of its rows have a loss: an MTP layer computes all rows, but for
// the head's matrix.
int64_t share_with_mtp(const model::Kind& head, int64_t loss_ppm) {
  const Wide own = 2 * Wide{head.work().products};
  const Wide all = own / 2 + head.mtp_work().products;
  return kAll - static_cast<int64_t>((kAll - loss_ppm) * own / all);
}

}  // namespace

CostModel::Options with_loss_share(CostModel::Options options, int64_t loss_ppm) {
  SLUICE_ASSERT(loss_ppm > 0 && loss_ppm <= kAll, base::text(loss_ppm, " ppm"));
  if (options.model.has_mtp()) loss_ppm = share_with_mtp(*options.model.kinds().back(), loss_ppm);
  for (auto& [tp, kinds] : options.kinds_by_tp) {
    Quadratic& head = kinds.back().times.forward;
    const Quadratic before = head;
    head = head.share(loss_ppm, kAll);
    head.c_ns = before.c_ns;
    if (!options.model.has_mtp()) continue;
    head.a = before.a;
    head.a_windowed = before.a_windowed;
  }
  return options;
}

}  // namespace sluice::cost
