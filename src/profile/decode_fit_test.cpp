#include "profile/decode_fit.h"

#include <gtest/gtest.h>

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

// The fit recovers known costs of engine steps although one repetition in four is disturbed.
TEST(DecodeFit, FindsWhatPassesTake) {
  const model::Program program(model::test_outline_of_8_heads());
  const DecodeShapes shapes(2048, 4096);
  const double key = 3.5, pair = 0.25;
  const auto of_rows = [](int64_t rows) { return 1000.0 + 20.0 * static_cast<double>(rows); };
  DecodeTimes times;
  for (const auto& [texts, before, rows] : shapes.all) {
    cost::DecodeWork work;
    for (int64_t text = 0; text < texts; ++text) work.add(before, before + rows, true, 0);
    const double attending =
        key * static_cast<double>(work.all.keys) + pair * static_cast<double>(work.all.pairs);
    const double ends = of_rows(texts * rows);
    std::vector<std::vector<double>>& of_shape = times.emplace_back();
    for (const double disturbed : {1.0, 1.0, 3.0, 1.0}) {
      of_shape.push_back({ends * disturbed, (ends + attending) * disturbed, ends * disturbed});
    }
  }
  const std::vector<cost::DecodeCost> costs = fit_decoding(shapes, times, program);
  ASSERT_EQ(costs.size(), 3);
  EXPECT_EQ(costs[0].key, 0);
  EXPECT_NEAR(static_cast<double>(costs[1].key), static_cast<double>(cost::Quadratic::from_ns(key, 0, 0).a),
              1e6);
  EXPECT_NEAR(static_cast<double>(costs[1].pair), static_cast<double>(cost::Quadratic::from_ns(pair, 0, 0).a),
              1e6);
  for (const int64_t rows : {1, 7, 100, 256})
    EXPECT_NEAR(static_cast<double>(cost::of_rows_ns(costs[1].by_rows, rows)), of_rows(rows), 2);
  EXPECT_NEAR(static_cast<double>(cost::of_rows_ns(costs[1].by_rows, 2048)), of_rows(2048), 2);
  // The head's rows are one for each sequence, so runs of rows give no information about it.
  EXPECT_EQ(costs[2].by_rows.size(), shapes.several_sequences);
}

}  // namespace
}  // namespace sluice::profile
