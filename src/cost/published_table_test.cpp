#include "cost/published_table.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cost/memory_cost.h"
#include "cost/table_figures.h"
#include "cost/test_model.h"
#include "model/test_outline.h"

namespace sluice::cost {
namespace {

using strategy::Scheme;

// Six layers on <1,1>, <1,2> and <1,3>, with parameters counted as 1000 a layer and 500 an end.
CostModel::Options table_options() {
  CostModel::Options options = tiny_options();
  options.model = model::changed(options.model, [](model::Outline& outline) { outline.layers = 6; });
  options.kinds_by_tp.clear();
  for (const int pp : {1, 2, 3}) {
    options.scheme_times[{1, pp}] = {.stage = Quadratic::from_ns(12.0 / pp, 100.0 / pp, 50),
                                     .saved_bytes_per_token = 6000 / pp,
                                     .util_len_tokens = 32};
  }
  options.memory = {.device_bytes = 1'000'000,
                    .element_bytes = 2,
                    .accumulator_bytes = 2,
                    .owner_bytes_per_parameter = 12,
                    .layer_parameters = 1000,
                    .end_parameters = 500};
  return options;
}

TEST(SchemeTable, WholeStagesTakeWhatTheTableSays) {
  const CostModel cost(table_options());
  const std::vector<int64_t> lengths = {10, 7};
  for (const int pp : {1, 2, 3}) {
    const Scheme scheme{.pp = pp};
    for (int stage = 0; stage < pp; ++stage) {
      const auto part = cost.stage_run(scheme, stage);
      Quadratic sum = cost.cell_times(scheme, CellKind::kForward, part);
      sum += cost.cell_times(scheme, CellKind::kBackward, part);
      EXPECT_EQ(sum, table_options().scheme_times.at({1, pp}).stage);
      EXPECT_EQ(cost.stage_times(scheme, stage), sum);
      const auto third = static_cast<double>(sum.of_sequences(lengths)) / 3;
      const auto squares = static_cast<double>(Quadratic{.a = sum.a}.of_sequences(lengths)) / 3;
      const auto cell_ns = [&](CellKind kind) {
        return static_cast<double>(cost.cell_ns(scheme, kind, part, lengths));
      };
      EXPECT_NEAR(cell_ns(CellKind::kForward), third, 2);
      EXPECT_NEAR(cell_ns(CellKind::kBackwardInput), third + squares, 2);
      EXPECT_NEAR(cell_ns(CellKind::kBackwardWeight), third - squares, 2);
    }
  }
}

TEST(SchemeTable, PartsTakeTheirLayersShare) {
  const CostModel cost(table_options());
  const std::vector<int64_t> lengths = {100};
  // <1,2>: 6·100² + 50·100 + 50 forward and backward on three layers; a ninth is one layer's forward.
  EXPECT_EQ(cost.cell_ns({.pp = 2}, CellKind::kForward, {1, 2}, lengths), (60'000 + 5'000) / 9 + 6);
  EXPECT_EQ(cost.cell_ns({.pp = 2}, CellKind::kForward, {6, 8}, lengths), (60'000 + 5'000) / 9 + 6);
  EXPECT_EQ(cost.cell_ns({.pp = 2}, CellKind::kForward, {7, 8}, lengths), 0);
}

TEST(SchemeTable, MemoryHoldsPpOfTheLongestMicroBatches) {
  const CostModel cost(table_options());
  // 3 layers and an end of compute and gradients, a quarter of everything at 12 bytes.
  EXPECT_EQ(MemoryCost(cost, {.pp = 2}).fixed_bytes(4), 3500 * 4 + 7000 / 4 * 12);
  const int64_t free_bytes = 1'000'000 - MemoryCost(cost, {.pp = 2}).fixed_bytes(4);
  EXPECT_EQ(MemoryCost(cost, {.pp = 2}).credit_tokens(4), free_bytes / 3000);
  EXPECT_EQ(MemoryCost(cost, {.pp = 2}).max_len_tokens(4), free_bytes / 6000);
  EXPECT_EQ(MemoryCost(cost, {.pp = 2}).saved_bytes_per_token(1), 1000);
  EXPECT_EQ(MemoryCost(cost, {.pp = 2}).deferred_bytes_per_token(1), 0);
  EXPECT_EQ(util_len_tokens(cost, {.pp = 2}), 32);
}

TEST(SchemeTable, SchemesWithoutARowAreNamed) {
  const CostModel cost(table_options());
  EXPECT_TRUE(cost.has_scheme({.pp = 3}));
  EXPECT_TRUE(cost.has_scheme({.pp = 3, .cp = 2}));
  EXPECT_FALSE(cost.has_scheme({.pp = 6}));
  EXPECT_FALSE(cost.has_scheme({.tp = 2}));
  EXPECT_EQ(cost.schemes(2), (std::vector<Scheme>{{}, {.pp = 2}}));
  const Scheme six{.pp = 6};
  const std::vector<std::function<void()>> queries = {
      [&] {
        cost.cell_ns(six, CellKind::kForward, {1, 2}, Work{});
      },
      [&] { cost.stage_times(six, 0); },
      [&] { MemoryCost(cost, six).max_len_tokens(8); },
      [&] { MemoryCost(cost, six).credit_tokens(8); },
      [&] { util_len_tokens(cost, six); },
  };
  for (const auto& query : queries) {
    try {
      query();
      ADD_FAILURE();
    } catch (const base::InputError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("no row for scheme <1,6,1> (it has <1,1,1>, <1,2,1>"), std::string::npos)
          << message;
    }
  }
}

TEST(SchemeTable, UtilLengthIsWhereTokensTakeMostOfTheTime) {
  const CostModel cost(tiny_options());
  // One stage: 5·(10 + 20 + 12) + 1 + 2 + 30 ns a token, 5·350 + 7 + 8 + 9 once.
  EXPECT_EQ(util_len_tokens(cost, {}), (1774 * 85 + 243 * 15 / 2) / (243 * 15));
}

}  // namespace
}  // namespace sluice::cost
