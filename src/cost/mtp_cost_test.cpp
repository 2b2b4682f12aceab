// An MTP layer in prices, proofs of memory and FLOPs: one more layer, forward and backward, in the head's
// forward.
#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "cost/loss_share.h"
#include "cost/memory_cost.h"
#include "cost/model_flops.h"
#include "model/kind.h"
#include "model/test_outline.h"

namespace sluice::cost {
namespace {

model::Outline outline(bool mtp) {
  model::Outline made = model::test_outline();
  made.family = "deepseek_v3";
  made.mtp = mtp;
  made.hidden *= 16;  // products take most of the time, not norms
  made.head_dim *= 16;
  made.ffn_hidden *= 16;
  return made;
}

CostModel::Options options_of(bool mtp) {
  const int degrees[] = {1, 2};
  return analytic_options(outline(mtp), {}, {.device_bytes = int64_t{1} << 38}, degrees, 8);
}

Quadratic of_head(const CostModel& cost, int tp) {
  const int64_t head = cost.program().head();
  return cost.cell_times({.tp = tp}, CellKind::kForward, {head, head + 1});
}

TEST(MtpCost, TheHeadTakesALayersTimeForwardAndBackwardBesides) {
  const CostModel with(options_of(true)), without(options_of(false));
  for (const int tp : {1, 2}) {
    const int64_t block = with.program().blocks().begin;
    Quadratic layer = with.cell_times({.tp = tp}, CellKind::kForward, {block, block + 1});
    layer += with.cell_times({.tp = tp}, CellKind::kBackward, {block, block + 1});
    const Quadratic head = of_head(with, tp), plain = of_head(without, tp);
    EXPECT_EQ(plain.a, 0);
    EXPECT_EQ(head.a, layer.a);
    EXPECT_GT(head.b, plain.b + layer.b);  // the projection, and the head's matrix again
    EXPECT_LT(head.b, 2.1 * static_cast<double>(plain.b) + 1.3 * static_cast<double>(layer.b));
  }
}

TEST(MtpCost, ItsLayerComputesRowsWithoutALoss) {
  const CostModel::Options all = options_of(true);
  const Quadratic before = of_head(CostModel(all), 1);
  const Quadratic sparse = of_head(CostModel(with_loss_share(all, 50'000)), 1);
  const Quadratic plain = of_head(CostModel(options_of(false)), 1);
  EXPECT_EQ(sparse.a, before.a);
  EXPECT_LT(sparse.b, before.b);
  EXPECT_GT(sparse.b, before.b - 2 * plain.b);
}

TEST(MtpCost, ItsActivationsAreWorkingMemoryOfTheHead) {
  const CostModel with(options_of(true)), without(options_of(false));
  const strategy::Scheme scheme{.pp = 2};
  const MemoryCost own(with, scheme), plain(without, scheme);
  const int64_t tokens = 1000, saved = own.mtp_bytes().saved;
  EXPECT_EQ(plain.mtp_bytes().saved, 0);
  EXPECT_GT(saved, own.saved_bytes_per_token(with.program().blocks().begin));
  const base::Interval last = with.stage_run(scheme, 1), first = with.stage_run(scheme, 0);
  const auto working = [&](const MemoryCost& memory, base::Interval run) {
    return memory.working_bytes(CellKind::kForward, run, tokens, tokens, /*copies=*/false);
  };
  EXPECT_GE(working(own, last), working(plain, last) + tokens * saved);
  EXPECT_LT(working(own, first), working(plain, first) + tokens * 64);  // ids and targets
  EXPECT_EQ(own.held_bytes_per_token(), plain.held_bytes_per_token());
  EXPECT_LT(own.credit_tokens(2), plain.credit_tokens(2));
}

TEST(MtpCost, ItsProductsAreFlopsOfTheModel) {
  const model::Program with(outline(true)), without(outline(false));
  const model::TokenWork mtp = with.kinds().back()->mtp_work();
  const double more = ModelFlops(with, 0).of_sequences(std::vector<int64_t>{100}) -
                      ModelFlops(without, 0).of_sequences(std::vector<int64_t>{100});
  EXPECT_DOUBLE_EQ(more, 6.0 * static_cast<double>(mtp.products) * 100 +
                             6.0 * static_cast<double>(mtp.attention) * 100 * 100);
}

}  // namespace
}  // namespace sluice::cost
