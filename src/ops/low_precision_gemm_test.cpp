#include "ops/low_precision_gemm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <limits>

namespace sluice::ops {
namespace {

using base::GemmFormat;

at::Tensor random(at::IntArrayRef sizes, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn(sizes);
}

double off_by(const at::Tensor& found, const at::Tensor& expected) {
  return (found.to(at::kDouble) - expected.to(at::kDouble)).norm().item<double>() /
         expected.to(at::kDouble).norm().item<double>();
}

TEST(NarrowProduct, OfWholeNumbersIsTheProductOfTheirCodes) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {7, 33, 5}, {97, 16, 64}, {200, 130, 257}}) {
    const at::Tensor left = random({m, k}, 1), right = random({n, k}, 2);
    const RowCodes a = row_codes(left), b = row_codes(right);
    const at::Tensor expected = at::mm(a.code_RK.to(at::kDouble), b.code_RK.to(at::kDouble).t()) *
                                a.factor_R.unsqueeze(1) * b.factor_R;
    // A processor may round what stands next to a border to its other side.
    EXPECT_LT(off_by(low_precision_gemm(GemmFormat::kInt8, left, right), expected), 1e-3)
        << m << " " << n << " " << k;
  }
}

TEST(NarrowProduct, TakesTransposedOperandsAndAdds) {
  const at::Tensor x_TA = random({61, 40}, 1), y_TB = random({61, 24}, 2);
  const at::Tensor laid = low_precision_gemm(GemmFormat::kInt8, x_TA.t().contiguous(), y_TB.t().contiguous());
  EXPECT_EQ(0, (low_precision_gemm(GemmFormat::kInt8, x_TA.t(), y_TB.t()) - laid).abs().max().item<double>());
  for (const at::ScalarType wide : {at::kFloat, at::kDouble}) {
    const at::Tensor sum = at::ones({40, 24}, at::dtype(wide));
    add_low_precision_gemm(GemmFormat::kInt8, sum, x_TA.t(), y_TB.t());
    EXPECT_LT(off_by(sum - 1, laid), 1e-5);
  }
}

TEST(NarrowProduct, IsNearTheExactOneInItsFormatsMeasure) {
  const at::Tensor left = random({150, 300}, 3), right = random({80, 300}, 4),
                   exact = at::mm(left, right.t());
  EXPECT_LT(off_by(low_precision_gemm(GemmFormat::kBFloat16, left, right), exact), 5e-3);
  EXPECT_LT(off_by(low_precision_gemm(GemmFormat::kInt8, left, right), exact), 2e-2);
  EXPECT_LT(off_by(low_precision_gemm(GemmFormat::kFloat8, left, right), exact), 5e-2);
  for (const GemmFormat format : base::kLowPrecisionFormats) {
    EXPECT_EQ(low_precision_gemm(format, left.to(at::kBFloat16), right.to(at::kBFloat16)).scalar_type(),
              at::kBFloat16);
  }
}

// A number between two codes is rounded to either, in the mean to itself.
TEST(NarrowProduct, RoundsWholeNumbersWithoutBias) {
  at::Tensor x_RK = at::full({1, 100'001}, 0.3);
  x_RK[0][0] = 127;  // so that codes are whole numbers
  const RowCodes codes = row_codes(x_RK);
  EXPECT_FLOAT_EQ(codes.factor_R[0].item<float>(), 1);
  const at::Tensor rounded = codes.code_RK.narrow(1, 1, 100'000);
  EXPECT_NEAR(rounded.mean().item<double>(), 0.3, 5e-3);
  EXPECT_EQ(rounded.min().item<float>(), 0);
  EXPECT_EQ(rounded.max().item<float>(), 1);
  // And products are not off in the mean, whatever the sign.
  const at::Tensor left = random({400, 64}, 5), right = random({300, 64}, 6), exact = at::mm(left, right.t());
  const at::Tensor error = low_precision_gemm(GemmFormat::kInt8, left, right) - exact;
  const double off = (error * exact).sum().item<double>() / (exact * exact).sum().item<double>();
  EXPECT_LT(std::abs(off), 2e-3);
}

TEST(NarrowProduct, RepeatsToTheBit) {
  const at::Tensor left = random({90, 70}, 7), right = random({50, 70}, 8);
  for (const GemmFormat format : base::kLowPrecisionFormats)
    EXPECT_TRUE(at::equal(low_precision_gemm(format, left, right), low_precision_gemm(format, left, right)));
}

TEST(NarrowProduct, KeepsZerosAndTellsOfWhatIsNotFinite) {
  for (const GemmFormat format : base::kLowPrecisionFormats) {
    at::Tensor left = random({20, 32}, 9);
    const at::Tensor right = random({18, 32}, 10);
    EXPECT_EQ(low_precision_gemm(format, at::zeros_like(left), right).abs().max().item<double>(), 0);
    left[3][5] = std::numeric_limits<float>::infinity();
    const at::Tensor product = low_precision_gemm(format, left, right);
    EXPECT_FALSE(at::isfinite(product[3]).any().item<bool>()) << name_of(format);
    EXPECT_TRUE(at::isfinite(product[4]).all().item<bool>()) << name_of(format);
  }
}

}  // namespace
}  // namespace sluice::ops
