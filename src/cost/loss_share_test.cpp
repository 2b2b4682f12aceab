#include "cost/loss_share.h"

#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "model/test_outline.h"

namespace sluice::cost {
namespace {

TEST(LossShare, ScalesTheHeadsTimeByTokenAlone) {
  const int degrees[] = {1, 2};
  const CostModel::Options all =
      analytic_options(model::test_outline(), {}, {.device_bytes = int64_t{1} << 30}, degrees, 8);
  const CostModel whole(all), sparse(with_loss_share(all, 50'000));
  for (const int tp : degrees) {
    const strategy::Scheme scheme{.tp = tp};
    const int64_t head = whole.program().head();
    const Quadratic before = whole.cell_times(scheme, CellKind::kForward, {head, head + 1});
    const Quadratic after = sparse.cell_times(scheme, CellKind::kForward, {head, head + 1});
    EXPECT_NEAR(static_cast<double>(after.b), 0.05 * static_cast<double>(before.b), 1.0);
    EXPECT_EQ(after.c_ns, before.c_ns);
    EXPECT_EQ(whole.cell_times(scheme, CellKind::kForward, {0, head}),
              sparse.cell_times(scheme, CellKind::kForward, {0, head}));
  }
  EXPECT_EQ(with_loss_share(all, 1'000'000).kinds_by_tp, all.kinds_by_tp);
}

}  // namespace
}  // namespace sluice::cost
