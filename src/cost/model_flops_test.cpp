#include "cost/model_flops.h"

#include <gtest/gtest.h>

#include "cost/cost_model.h"
#include "cost/test_model.h"
#include "model/kind.h"

namespace sluice::cost {
namespace {

// Multiply-adds of a token in all layers and the head, of which some with matrices that are trained; and with
// each token that it attends to.
struct Sums {
  double products = 0, trained = 0, attention = 0;
};
Sums sums_of(const model::Program& program) {
  Sums sums;
  for (int64_t i = 0; i < program.size(); ++i) {
    const model::TokenWork work = program.kind_at(i).work();
    sums.products += static_cast<double>(work.products);
    sums.trained += static_cast<double>(work.trained);
    sums.attention += static_cast<double>(work.attention);
  }
  return sums;
}

TEST(ModelFlops, AreSixAParameterAndTokenAndSixAPair) {
  const CostModel cost(tiny_options());
  const Sums sums = sums_of(cost.program());
  EXPECT_GT(sums.attention, 0);
  EXPECT_EQ(sums.products, sums.trained);
  const ModelFlops flops(cost.program(), cost.window());
  // The scores and values of half a square of pairs: 2 products of 2 FLOPs, three times.
  EXPECT_DOUBLE_EQ(flops.of_sequences(std::vector<int64_t>{10, 30}),
                   6 * sums.products * 40 + 6 * sums.attention * (100 + 900));
}

TEST(ModelFlops, WhatNoGradientReachesIsComputedForwardAlone) {
  const CostModel all(tiny_options()), upper(tiny_options_with_frozen_start());
  const std::vector<int64_t> lengths{12};
  const double trained = ModelFlops(all.program(), 0).of_sequences(lengths);
  const double frozen = ModelFlops(upper.program(), 0).of_sequences(lengths);
  const model::TokenWork layer = all.program().kind_at(1).work();
  const double of_layer =
      4.0 * static_cast<double>(layer.products) * 12 + 4.0 * static_cast<double>(layer.attention) * 144;
  // Two frozen layers have no backward, and the third hands no gradient on.
  EXPECT_DOUBLE_EQ(trained - frozen, 2 * of_layer + 2.0 * static_cast<double>(layer.products) * 12);
}

TEST(ModelFlops, OfAPlanAreThoseOfItsSequencesHoweverTheyAreCut) {
  const CostModel cost(tiny_options());
  const ModelFlops flops(cost.program(), cost.window());
  strategy::StepPlan plan;
  strategy::PipelinePlan& pipeline = plan.pipelines.emplace_back();
  pipeline.micro_batches.push_back({.lanes = 4, .sequences = {{.length_tokens = 64}}});
  pipeline.micro_batches.push_back({.sequences = {{.length_tokens = 5}, {.length_tokens = 9}}});
  EXPECT_DOUBLE_EQ(flops.of_plan(plan), flops.of_sequences(std::vector<int64_t>{64, 5, 9}));
}

TEST(Utilisation, IsAShareOfThePeak) {
  EXPECT_EQ(utilisation(500, 10, 100), 0.5);
  EXPECT_EQ(utilisation(500, 10, std::nullopt), std::nullopt);
  EXPECT_EQ(utilisation(500, 0, 100), std::nullopt);
}

}  // namespace
}  // namespace sluice::cost
