#include "cost/transferred_prices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/test_outline.h"

namespace sluice::cost {
namespace {

const std::vector<int> kDegrees{1, 2};

Rates other_rates() {
  return {.product_flops_per_ns = 75,
          .attention_forward_flops_per_ns = 11,
          .attention_backward_flops_per_ns = 9,
          .elementwise_bytes_per_ns = 10,
          .layer_overhead_ns = 20e3,
          .collective = {.bytes_per_ns = 2.5, .latency_ns = 20e3},
          .intra_node = {.bytes_per_ns = 7, .latency_ns = 3e3},
          .update_ns_per_element = 0.25};
}

model::Outline larger() {
  model::Outline outline = model::test_outline(6);
  outline.hidden *= 2;
  outline.head_dim *= 2;
  outline.ffn_hidden *= 3;
  return outline;
}

void expect_near(const Quadratic& found, const Quadratic& expected, double tolerance) {
  EXPECT_NEAR(static_cast<double>(found.a), static_cast<double>(expected.a),
              tolerance * static_cast<double>(expected.a) + 1);
  EXPECT_NEAR(static_cast<double>(found.b), static_cast<double>(expected.b),
              tolerance * static_cast<double>(expected.b) + 1);
  EXPECT_NEAR(static_cast<double>(found.c_ns), static_cast<double>(expected.c_ns),
              tolerance * static_cast<double>(expected.c_ns) + 1);
}

void expect_near(const CostModel::Options& found, const CostModel::Options& expected, double tolerance) {
  for (const auto& [tp, kinds] : expected.kinds_by_tp) {
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      const OperationTimes& own = found.kinds_by_tp.at(tp)[kind].times;
      expect_near(own.forward, kinds[kind].times.forward, tolerance);
      expect_near(own.backward_input, kinds[kind].times.backward_input, tolerance);
      expect_near(own.backward_weight, kinds[kind].times.backward_weight, tolerance);
    }
  }
}

TEST(TransferredPrices, TheMeasuredModelHasItsOwn) {
  const CostModel::Options measured =
      analytic_options(model::test_outline(2), other_rates(), {}, kDegrees, {});
  const CostModel::Options found =
      transferred_options(measured, model::test_outline(2), Rates{}, {}, kDegrees);
  expect_near(found, measured, 1e-9);
  EXPECT_EQ(found.intra, measured.intra);
  EXPECT_EQ(found.update_ps_per_element, measured.update_ps_per_element);
}

// A machine that is faster by one factor in everything is known exactly from any model.
TEST(TransferredPrices, AFasterMachineIsFasterForOtherModels) {
  Rates twice;
  for (double* rate : {&twice.product_flops_per_ns, &twice.attention_forward_flops_per_ns,
                       &twice.attention_backward_flops_per_ns, &twice.elementwise_bytes_per_ns,
                       &twice.collective.bytes_per_ns})
    *rate *= 2;
  twice.layer_overhead_ns /= 2;
  twice.collective.latency_ns /= 2;
  const CostModel::Options measured = analytic_options(model::test_outline(2), twice, {}, kDegrees, {});
  expect_near(transferred_options(measured, larger(), Rates{}, {}, kDegrees),
              analytic_options(larger(), twice, {}, kDegrees, {}), 1e-3);
}

TEST(TransferredPrices, OtherModelsComeNearWhereRatesDifferByKind) {
  const CostModel::Options measured =
      analytic_options(model::test_outline(2), other_rates(), {}, kDegrees, {});
  expect_near(transferred_options(measured, larger(), Rates{}, {}, kDegrees),
              analytic_options(larger(), other_rates(), {}, kDegrees, {}), 0.5);
}

TEST(TransferredPrices, ADegreeThatWasNotMeasuredIsCorrectedAsTheNearest) {
  const std::vector<int> one{1};
  const CostModel::Options measured = analytic_options(model::test_outline(2), other_rates(), {}, one, {});
  const CostModel::Options found =
      transferred_options(measured, model::test_outline(2), Rates{}, {}, kDegrees);
  const CostModel::Options counted = analytic_options(model::test_outline(2), Rates{}, {}, kDegrees, {});
  const auto forward = [](const CostModel::Options& options, int tp) {
    return static_cast<double>(options.kinds_by_tp.at(tp)[1].times.forward.b);
  };
  EXPECT_NEAR(forward(found, 2) / forward(counted, 2), forward(measured, 1) / forward(counted, 1), 1e-6);
}

TEST(TransferredPrices, PricesOfSchemesCorrectNothing) {
  CostModel::Options measured = analytic_options(model::test_outline(2), other_rates(), {}, kDegrees, {});
  measured.kinds_by_tp.clear();
  expect_near(transferred_options(measured, larger(), Rates{}, {}, kDegrees),
              analytic_options(larger(), Rates{}, {}, kDegrees, {}), 1e-12);
}

}  // namespace
}  // namespace sluice::cost
