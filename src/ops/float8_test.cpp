#include "ops/float8.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace sluice::ops {
namespace {

at::Tensor normal(at::IntArrayRef sizes, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn(sizes);
}

// All finite magnitudes of E4M3, ascending: 4 bits of exponent with a bias of 7, 3 of the mantissa.
std::vector<double> magnitudes() {
  std::vector<double> all;
  for (int code = 0; code < 127; ++code) {
    const int exponent = code / 8, mantissa = code % 8;
    all.push_back(exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10));
  }
  return all;
}

// The numbers that the codes stand for.
at::Tensor decoded(const Float8Rows& rows) { return rows.code_RP.to(at::kDouble) * rows.factor_R1; }

TEST(Float8, CodesAreTheNearestNumbersOfTheFormat) {
  const std::vector<double> format = magnitudes();
  ASSERT_EQ(format.back(), 448);
  const at::Tensor x = normal({5, 37}, 1) * at::tensor({1e-6, 1.0, 3.0, 1e4, 1e-30}).unsqueeze(1);
  const Float8Rows rows = float8_rows(x);
  ASSERT_EQ(rows.code_RP.sizes(), (std::vector<int64_t>{5, 48}));
  EXPECT_EQ(rows.code_RP.narrow(1, 37, 11).to(at::kFloat).abs().max().item<float>(), 0);
  for (int64_t r = 0; r < 5; ++r) {
    const double factor = rows.factor_R1[r].item<double>();
    EXPECT_NEAR(factor, x[r].abs().max().item<double>() / 448, 1e-6 * factor);
    for (int64_t i = 0; i < 37; ++i) {
      const double wanted = std::abs(x[r][i].item<double>()) / factor;
      const double found = std::abs(rows.code_RP[r][i].to(at::kFloat).item<double>());
      double least = 1e9;
      for (const double number : format) least = std::min(least, std::abs(number - wanted));
      EXPECT_TRUE(std::ranges::binary_search(format, found)) << found;
      EXPECT_LE(std::abs(found - wanted), least + 1e-4) << x[r][i].item<double>();
    }
  }
}

TEST(Float8, ColumnsAreTheRowsOfTheTransposed) {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 1}, {1, 20}, {20, 1}, {33, 48}}) {
    const at::Tensor x = normal({rows, width}, 2);
    const Float8Rows expected = float8_rows(x.t().contiguous());
    for (const Float8Rows& found : {float8_columns(x), float8_rows(x.t()), float8_columns(x.clone())}) {
      EXPECT_TRUE(at::equal(found.code_RP.to(at::kFloat), expected.code_RP.to(at::kFloat)));
      EXPECT_TRUE(at::equal(found.factor_R1, expected.factor_R1));
    }
  }
}

TEST(Float8, ProductsAreThoseOfTheCodes) {
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{1, 1, 1}, {7, 33, 5}, {48, 16, 64}, {3, 4, 0}, {0, 4, 3}}) {
    const Float8Rows left = float8_rows(normal({m, k}, 3)), right = float8_rows(normal({n, k}, 4));
    const at::Tensor expected = at::mm(decoded(left), decoded(right).t());
    EXPECT_TRUE(at::allclose(float8_product(left, right, at::kDouble), expected, 1e-12, 1e-12));
    const at::Tensor narrow = float8_product(left, right, at::kBFloat16);
    EXPECT_EQ(narrow.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::allclose(narrow.to(at::kDouble), expected, 1e-2, 1e-4));
    const at::Tensor sum = at::ones({m, n});
    add_float8_product(sum, left, right);
    EXPECT_TRUE(at::allclose(sum.to(at::kDouble), expected + 1, 1e-5, 1e-5));
  }
}

TEST(Float8, RowsOfAnyMagnitudeAndThoseThatAreNotFinite) {
  at::Tensor x = normal({6, 32}, 5);
  x[0].zero_();
  x[1].mul_(1e-36);  // 448 over it would be infinite
  x[2][7] = std::numeric_limits<float>::infinity();
  x[3][8] = std::numeric_limits<float>::quiet_NaN();
  x[4].mul_(1e30);
  const at::Tensor product = float8_product(float8_rows(x), float8_rows(normal({16, 32}, 6)), at::kDouble);
  const std::vector<bool> finite{true, true, false, false, true, true};
  for (int64_t r = 0; r < 6; ++r)
    EXPECT_EQ(at::isfinite(product[r]).all().item<bool>(), finite[static_cast<size_t>(r)]) << r;
  EXPECT_FALSE(at::isfinite(product[2]).any().item<bool>());
  EXPECT_FALSE(at::isfinite(product[3]).any().item<bool>());
  EXPECT_EQ(product[0].abs().max().item<double>(), 0);
}

TEST(Float8, AWeightIsCodedOnceInEachDirection) {
  const at::Tensor w = normal({16, 24}, 7);
  const Float8Rows rows = float8_rows(w), columns = float8_columns(w);
  Float8Weight weight;
  EXPECT_TRUE(at::equal(decoded(weight.rows(w)), decoded(rows)));
  EXPECT_TRUE(at::equal(decoded(weight.columns(w)), decoded(columns)));
  const at::Tensor other = w * 2;
  EXPECT_TRUE(at::equal(decoded(weight.rows(other)), decoded(rows)));
  EXPECT_TRUE(at::equal(decoded(weight.columns(other)), decoded(columns)));
}

}  // namespace
}  // namespace sluice::ops
