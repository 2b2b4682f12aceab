#include "profile/decode_fit.h"

#include <gtest/gtest.h>

#include <functional>

#include "cost/quadratic.h"
#include "cost/test_model.h"
#include "model/test_outline.h"

namespace sluice::profile {
namespace {

TEST(DecodeShapes, StayWithinTheLongestText) {
  for (const int64_t longest : {16, 100, 2048, 100'000}) {
    const DecodeShapes shapes(longest, /*token_bytes=*/4096);
    for (const auto& [texts, before, rows] : shapes.all) {
      EXPECT_GE(rows, 1);
      EXPECT_LE(before + rows, std::max<int64_t>(longest, 2));
      EXPECT_LE(texts * rows, 2048);
    }
    EXPECT_EQ(shapes.all[shapes.few].sequences, shapes.all[shapes.few_behind].sequences);
    EXPECT_EQ(shapes.all[shapes.chunk].rows, shapes.all[shapes.chunk_behind].rows);
  }
}

// Made-up costs of engine steps, in nanoseconds.
struct KnownCosts {
  double key = 3.5, pair = 0.25;
  double sequence_behind = 0;  // of a sequence that sees any cached token
  std::function<double(int64_t rows)> rows = [](int64_t count) {
    return 1000.0 + 20.0 * static_cast<double>(count);
  };

  // Times of an embedding, a layer and a head. One repetition in four is disturbed.
  DecodeTimes times(const DecodeShapes& shapes) const {
    DecodeTimes times;
    for (const auto& [texts, before, of_text] : shapes.all) {
      cost::DecodeWork work;
      for (int64_t text = 0; text < texts; ++text) work.add(before, before + of_text, true, 0);
      const double attending = key * static_cast<double>(work.all.keys) +
                               pair * static_cast<double>(work.all.pairs) +
                               (before > 0 ? sequence_behind * static_cast<double>(texts) : 0);
      const double ends = rows(texts * of_text);
      std::vector<std::vector<double>>& of_shape = times.emplace_back();
      for (const double disturbed : {1.0, 1.0, 3.0, 1.0})
        of_shape.push_back({ends * disturbed, (ends + attending) * disturbed, ends * disturbed});
    }
    return times;
  }
};

std::vector<cost::DecodeCost> fitted(const DecodeShapes& shapes, const KnownCosts& known) {
  return fit_decoding(shapes, known.times(shapes), model::Program(model::test_outline_of_8_heads()));
}

double rows_ns(const cost::DecodeCost& cost, int64_t rows) {
  return static_cast<double>(cost::of_rows_ns(cost.by_rows, rows));
}

void expect_near(int64_t fixed, double ns) {
  EXPECT_NEAR(static_cast<double>(fixed), static_cast<double>(cost::Quadratic::from_ns(ns, 0, 0).a), 1e6);
}

TEST(DecodeFit, FindsWhatPassesTake) {
  const DecodeShapes shapes(2048, 4096);
  const KnownCosts known;
  const std::vector<cost::DecodeCost> costs = fitted(shapes, known);
  ASSERT_EQ(costs.size(), 3);
  EXPECT_EQ(costs[0].key, 0);
  expect_near(costs[1].key, known.key);
  expect_near(costs[1].pair, known.pair);
  for (const int64_t rows : {1, 7, 100, 256, 2048}) EXPECT_NEAR(rows_ns(costs[1], rows), known.rows(rows), 2);
  // The head's rows are one for each sequence, so runs of rows give no information about it.
  EXPECT_EQ(costs[2].by_rows.size(), shapes.several_sequences);
}

// Few keys are read in steps of many short sequences, so that their price by sequence must not become one by
// key.
TEST(DecodeFit, CountsTheStartOfReadingTheCacheByRow) {
  const DecodeShapes shapes(2048, 4096);
  const KnownCosts known{.sequence_behind = 500};
  const cost::DecodeCost layer = fitted(shapes, known)[1];
  expect_near(layer.key, known.key);
  for (const int64_t rows : {1, 7, 64, 256})
    EXPECT_NEAR(rows_ns(layer, rows), known.rows(rows) + 500.0 * static_cast<double>(rows), 2);
}

TEST(DecodeFit, FewRowsMayTakeLongerThanSomeMore) {
  const DecodeShapes shapes(2048, 4096);
  const KnownCosts known{.rows = [](int64_t count) { return count == 2 ? 3500.0 : 1000.0 + 20.0 * count; }};
  const std::vector<cost::DecodeCost> costs = fitted(shapes, known);
  for (const cost::DecodeCost& cost : costs)
    for (const int64_t rows : {1, 2, 4, 8, 256}) EXPECT_NEAR(rows_ns(cost, rows), known.rows(rows), 2);
}

// Rows beyond the last point take no less time than the last point's.
TEST(DecodeFit, TimesDoNotFallBeyondTheLastPoint) {
  const DecodeShapes shapes(2048, 4096);
  const KnownCosts known{.rows = [](int64_t count) { return count >= 256 ? 4000.0 : 6000.0; }};
  const cost::DecodeCost head = fitted(shapes, known).back();
  EXPECT_GE(rows_ns(head, 100'000), rows_ns(head, 128));
}

}  // namespace
}  // namespace sluice::profile
