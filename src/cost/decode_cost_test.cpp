#include "cost/decode_cost.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "cost/analytic.h"
#include "cost/quadratic.h"
#include "cost/test_model.h"
#include "model/program.h"
#include "model/test_outline.h"

namespace sluice::cost {
namespace {

TEST(DecodeWork, CountsWhatEachRowSees) {
  base::Rng rng(1);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t begin = rng.between(0, 50), rows = rng.between(1, 30),
                  window = rng.between(0, 1) * rng.between(1, 40);
    DecodeWork expected;
    const auto see = [&](DecodeWork::AttentionWork& sight, int64_t through) {
      int64_t first = begin;  // key that some row sees
      for (int64_t row = begin; row < begin + rows; ++row) {
        const int64_t seen = through == 0 ? row + 1 : std::min(row + 1, through);
        first = std::min(first, row + 1 - seen);
        (rows == 1 ? sight.keys : sight.pairs) += seen;
      }
      if (rows > 1) sight.chunk_keys = begin + rows - first;
    };
    see(expected.all, 0);
    if (window > 0) see(expected.windowed, window);
    DecodeWork work;
    work.add(begin, begin + rows, /*says=*/true, window);
    EXPECT_EQ(work.all, expected.all);
    EXPECT_EQ(work.windowed, expected.windowed);
    EXPECT_EQ(work.rows, rows);
    EXPECT_EQ(work.sampled_rows, 1);
  }
}

TEST(DecodeWork, OfPassesAlikeIsTheirSum) {
  for (const int64_t window : {0, 7}) {
    DecodeWork run{.engine_steps = 20}, sum;
    for (const int64_t begin : {0, 3, 40}) {
      run.add_one_each(begin, window);
      for (int64_t pass = 0; pass < 20; ++pass) sum.add(begin + pass, begin + pass + 1, true, window);
    }
    EXPECT_EQ(run.all, sum.all);
    EXPECT_EQ(run.windowed, sum.windowed);
    EXPECT_EQ(run.engine_steps * run.rows, sum.rows);
  }
}

TEST(DecodeCost, IsAPiecewiseLine) {
  const std::vector<DecodeCost::Point> points{{1, 100}, {4, 130}, {8, 330}};
  EXPECT_EQ(of_rows_ns(points, 0), 0);
  EXPECT_EQ(of_rows_ns(points, 1), 100);
  EXPECT_EQ(of_rows_ns(points, 2), 110);
  EXPECT_EQ(of_rows_ns(points, 8), 330);
  EXPECT_EQ(of_rows_ns(points, 10), 430);
  EXPECT_EQ(of_rows_ns(std::vector<DecodeCost::Point>{{1, 5}}, 9), 5);
}

TEST(DecodeCost, OfARooflineReadsMatricesOrMultiplies) {
  const model::Outline outline = model::test_outline_of_8_heads();
  const model::Program program(outline);
  const Rates rates{.product_flops_per_ns = 1000, .memory_bytes_per_ns = 10, .layer_overhead_ns = 0};
  const model::Kind& block = program.kind_at(1);
  const DecodeCost cost = analytic_decode(block, outline, rates, 2, 1, DecodeShare::kAll);
  const double matrices = 2.0 * static_cast<double>(block.work().products) / 10;  // read, nanoseconds
  const double row = 2.0 * static_cast<double>(block.work().products) / 1000;
  const double other = 2.0 * static_cast<double>(block.work().elements) / 10;
  const auto ns = [&](int64_t rows) { return static_cast<double>(of_rows_ns(cost.by_rows, rows)); };
  EXPECT_NEAR(ns(1), matrices + other, 0.02 * ns(1));
  EXPECT_NEAR(ns(100), matrices + 100 * other, 0.02 * ns(100));
  EXPECT_NEAR(ns(1000), 1000 * (row + other), 0.02 * ns(1000));
  EXPECT_NEAR(ns(100'000), 100'000 * (row + other), 0.02 * ns(100'000));
  // 2 · kv heads · head_dim · 2 bytes at 10 a nanosecond.
  EXPECT_EQ(cost.key, Quadratic::from_ns(2 * 4 * 16 * 2 / 10.0, 0, 0).a);
}

TEST(DecodeCost, OfExpertsReadsThoseThatAreVisited) {
  model::Outline outline = model::test_outline_of_8_heads();
  outline.experts = {.count = 8, .per_token = 1, .hidden = 100};
  const model::Program program(outline);
  const Rates rates{.product_flops_per_ns = 1e9, .memory_bytes_per_ns = 1, .layer_overhead_ns = 0};
  const model::Kind& block = program.kind_at(1);
  const auto ns = [&](DecodeShare share, int lanes, int64_t rows) {
    return of_rows_ns(analytic_decode(block, outline, rates, 2, 1, share, lanes).by_rows, rows);
  };
  const int64_t one_expert = 3 * 128 * 100 * 2;
  EXPECT_NEAR(static_cast<double>(ns(DecodeShare::kExperts, 1, 1)), one_expert, 0.1 * one_expert);
  EXPECT_GT(ns(DecodeShare::kExperts, 1, 64), 7 * one_expert);
  EXPECT_LT(ns(DecodeShare::kExperts, 8, 64), 3 * one_expert);
  EXPECT_LT(ns(DecodeShare::kBesideExperts, 1, 1), ns(DecodeShare::kAll, 1, 1));
}

}  // namespace
}  // namespace sluice::cost
