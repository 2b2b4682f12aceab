// The fused CPU kernels against their twins from ATen's operators, in every type.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/gated_activation.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rotary.h"
#include "ops/simd.h"

namespace sluice::ops {
namespace {

class Fused : public testing::TestWithParam<at::ScalarType> {
 protected:
  Fused() { at::manual_seed(11); }
  at::Tensor random(at::IntArrayRef shape) const { return at::randn(shape, at::kDouble).to(GetParam()); }
  at::ScalarType wide() const { return GetParam() == at::kDouble ? at::kDouble : at::kFloat; }
  // bfloat16 has 8 bits of precision: a unit in the last place is at most 2^-8 of the largest element.
  double tolerance() const {
    return GetParam() == at::kDouble ? 1e-13 : GetParam() == at::kFloat ? 1e-5 : 1.0 / 128;
  }
  void expect_close(const at::Tensor& actual, const at::Tensor& expected) const {
    ASSERT_EQ(actual.scalar_type(), expected.scalar_type());
    const at::Tensor wide_expected = expected.to(at::kDouble);
    const double error = (actual.to(at::kDouble) - wide_expected).abs().max().item<double>();
    EXPECT_LE(error, tolerance() * wide_expected.abs().max().item<double>());
  }
};

TEST_P(Fused, RmsNorm) {
  const at::Tensor x = random({130, 33}), weight = random({33}), dy = random({130, 33});
  const RmsNorm fused = rms_norm(x, weight, 1e-5), twin = aten::rms_norm(x, weight, 1e-5);
  expect_close(fused.y_TH, twin.y_TH);
  expect_close(fused.inverse_rms_T, twin.inverse_rms_T);
  const at::Tensor dw_fused = at::zeros({33}, at::dtype(wide())), dw_twin = at::zeros_like(dw_fused);
  const auto a = rms_norm_backward(dy, x, weight, fused.inverse_rms_T, x, dw_fused);
  const auto b = aten::rms_norm_backward(dy, x, weight, fused.inverse_rms_T, x, dw_twin);
  expect_close(a.dx_TH, b.dx_TH);
  expect_close(a.y_TH, b.y_TH);
  expect_close(dw_fused, dw_twin);
}

TEST_P(Fused, RmsNormGradientDoesNotDependOnThreads) {
  const at::Tensor x = random({1000, 64}), weight = random({64}), dy = random({1000, 64});
  const at::Tensor r = rms_norm(x, weight, 1e-5).inverse_rms_T;
  const int threads = at::get_num_threads();
  at::Tensor sums[2];
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    sums[count - 1] = at::zeros({64}, at::dtype(wide()));
    rms_norm_backward(dy, x, weight, r, {}, sums[count - 1]);
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(sums[0], sums[1]));
}

TEST_P(Fused, Rotary) {
  const std::vector<double> frequencies = {1.0, 0.3, 0.01};
  const RotaryTable table = rotary_table(frequencies, 1.0, 32, at::dtype(GetParam()));
  const at::Tensor positions = at::arange(20, at::kLong), x = random({20, 2, 6});
  for (const Rotation rotation : {Rotation::kForward, Rotation::kBackward}) {
    const at::Tensor fused = x.clone(), twin = x.clone();
    rotate(fused, table, positions, rotation);
    aten::rotate(twin, table, positions, rotation);
    expect_close(fused, twin);
  }
}

TEST_P(Fused, GatedActivations) {
  for (const GatedRule rule : {GatedRule::kSwiglu, GatedRule::kGeglu, GatedRule::kClampedSwiglu}) {
    const GatedActivation activation{.rule = rule, .limit = 0.7};
    const at::Tensor gate_up = random({40, 2 * 19}), da = random({40, 19});
    expect_close(gated_activation(activation, gate_up), aten::gated_activation(activation, gate_up));
    const at::Tensor fused = gate_up.clone(), twin = gate_up.clone();
    expect_close(gated_activation_backward(activation, da, fused),
                 aten::gated_activation_backward(activation, da, twin));
    expect_close(fused, twin);
  }
}

TEST_P(Fused, Embedding) {
  const at::Tensor weight = random({12, 7}), dx = random({9, 7});
  const at::Tensor ids = at::tensor({4, 5, 16, 17, 4, -1, 8, 8, 8}, at::kLong);
  expect_close(embedding_lookup(weight, ids, 5), aten::embedding_lookup(weight, ids, 5));
  const at::Tensor fused = at::zeros({12, 7}, at::dtype(wide())), twin = at::zeros_like(fused);
  embedding_lookup_backward(dx, ids, 5, fused);
  aten::embedding_lookup_backward(dx, ids, 5, twin);
  expect_close(fused, twin);
}

TEST_P(Fused, CrossEntropy) {
  const at::Tensor logits = random({17, 29}).to(wide()) * 3, targets = at::randint(0, 40, {17}, at::kLong);
  const at::Tensor fused = logits.clone(), twin = logits.clone();
  const at::Tensor a = row_statistics(fused, targets, 3), b = aten::row_statistics(twin, targets, 3);
  expect_close(a.narrow(1, 0, 2), b.narrow(1, 0, 2));
  EXPECT_TRUE(at::equal(a.select(1, 2), b.select(1, 2)));
  expect_close(cross_entropy_gradient(fused, b, b, targets, 3, GetParam()),
               aten::cross_entropy_gradient(twin, b, b, targets, 3, GetParam()));
}

TEST_P(Fused, WeightGradientAccumulatesInWideType) {
  const at::Tensor a = random({50, 6}), b = random({50, 4});
  const at::Tensor sum = at::ones({6, 4}, at::dtype(wide()));
  accumulate_weight_gradient(sum, a, b);
  expect_close(sum, 1 + at::matmul(a.to(wide()).t(), b.to(wide())));
}

INSTANTIATE_TEST_SUITE_P(Types, Fused, testing::Values(at::kDouble, at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

TEST(Narrow, RoundsEveryPatternLikeTorch) {
  for (uint64_t pattern = 0; pattern < (uint64_t{1} << 32); pattern += 4093) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(pattern));
    EXPECT_EQ(narrow<at::BFloat16>(value).x, at::BFloat16(value).x) << pattern;
  }
  for (const uint32_t pattern :
       {0x3f808000U, 0x3f818000U, 0x7f7fffffU, 0x7f800000U, 0xff800000U, 0x7f800001U}) {
    const float value = std::bit_cast<float>(pattern);
    EXPECT_EQ(narrow<at::BFloat16>(value).x, at::BFloat16(value).x) << pattern;
  }
}

template <typename T>
double largest_exp_error(double range) {
  double worst = 0.0;
  for (double x = -range; x <= range; x += range / 5000) {
    const T value = static_cast<T>(x);
    const double expected = std::exp(static_cast<double>(value));
    worst = std::max(worst, std::abs(static_cast<double>(vector_exp(value)) / expected - 1.0));
  }
  return worst;
}

TEST(VectorExp, IsWithinAnUlp) {
  EXPECT_LT(largest_exp_error<float>(86.9), 1.2e-7);
  EXPECT_LT(largest_exp_error<double>(707.0), 4.5e-16);
}

TEST(VectorExp, ClampsInfinitiesAndKeepsNaN) {
  EXPECT_LT(vector_exp(-std::numeric_limits<float>::infinity()), 1e-37F);
  EXPECT_TRUE(std::isfinite(vector_exp(std::numeric_limits<float>::infinity())));
  EXPECT_TRUE(std::isnan(vector_exp(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(vector_exp(std::numeric_limits<double>::quiet_NaN())));
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
// A gated activation's elements, as SLUICE_SIMD_WIDE compiles them for an architecture.
#define SLUICE_ELEMENTS(name, architecture)                                                \
  template <typename T>                                                                    \
  __attribute__((target("arch=" architecture), noinline)) void name(T* x, int64_t count) { \
    _Pragma("omp simd") for (int64_t i = 0; i < count; ++i) {                              \
      const T sigmoid = vector_sigmoid(x[i]), silu = x[i] * sigmoid;                       \
      x[i] = x[i] * (sigmoid + silu * (T(1) - sigmoid)) + vector_exp(x[i]);                \
    }                                                                                      \
  }
SLUICE_ELEMENTS(elements_by_avx2, "x86-64-v3")
SLUICE_ELEMENTS(elements_by_avx512, "x86-64-v4")

template <typename T>
void expect_both_widths_agree() {
  std::vector<T> narrow;
  for (T x = -30; x < 30; x += T(0.0037)) narrow.push_back(x);
  std::vector<T> wide = narrow;
  elements_by_avx2(narrow.data(), std::ssize(narrow));
  elements_by_avx512(wide.data(), std::ssize(wide));
  EXPECT_EQ(narrow, wide);
}

TEST(VectorExp, ElementsAreTheSameToTheBitOnBothWidths) {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl"))
    GTEST_SKIP() << "this processor has no AVX-512";
  expect_both_widths_agree<float>();
  expect_both_widths_agree<double>();
}
#endif

}  // namespace
}  // namespace sluice::ops
