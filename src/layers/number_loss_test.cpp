#include "layers/number_loss.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sluice::layers {
namespace {

at::Tensor numbers(int64_t rows, int64_t columns) {
  return at::arange(rows * columns, at::kDouble).mul(0.7).sin().mul(3).view({rows, columns});
}

double sum_of(const NumberLoss& loss, const at::Tensor& numbers_RK, const at::Tensor& target_R,
              const at::Tensor& given_RF) {
  return loss.of(numbers_RK, target_R, given_RF).loss_R.sum().item<double>();
}

// Compares with central differences.
void expect_gradient(const NumberLoss& loss, const at::Tensor& target_R, const at::Tensor& given_RF) {
  const at::Tensor x_RK = numbers(4, 3);
  const at::Tensor gradient_RK = loss.of(x_RK, target_R, given_RF).gradient_RK;
  constexpr double kStep = 1e-5;
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t column = 0; column < 3; ++column) {
      at::Tensor above = x_RK.clone(), below = x_RK.clone();
      above[row][column] += kStep;
      below[row][column] -= kStep;
      const double slope =
          (sum_of(loss, above, target_R, given_RF) - sum_of(loss, below, target_R, given_RF)) / (2 * kStep);
      EXPECT_NEAR(gradient_RK[row][column].item<double>(), slope, 1e-8) << row << ", " << column;
    }
  }
}

const at::Tensor kTargets = at::tensor({2, 0, 1, 1}, at::kLong);
const at::Tensor kMarks =
    at::tensor({1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.25, 0.5, 0.75}).view({4, 3});

TEST(NumberLoss, GradientsAreSlopes) {
  expect_gradient(*class_cross_entropy(), kTargets, {});
  expect_gradient(*binary_cross_entropy(), kTargets, kMarks.to(at::kDouble));
  expect_gradient(*squared_error(), kTargets, kMarks.to(at::kDouble));
}

TEST(NumberLoss, LargeNumbersGiveNoInfinity) {
  const at::Tensor x = at::tensor({1e4, -1e4, 0.0}, at::kDouble).view({1, 3});
  const at::Tensor marks = at::tensor({0.0, 1.0, 1.0}, at::kDouble).view({1, 3});
  EXPECT_NEAR(sum_of(*binary_cross_entropy(), x, {}, marks), (1e4 + 1e4 + std::log(2)) / 3, 1e-9);
  EXPECT_NEAR(sum_of(*class_cross_entropy(), x, at::tensor({1}, at::kLong), {}), 2e4, 1e-9);
}

TEST(NumberLoss, NotesCountRowsThatAreRight) {
  const at::Tensor x = at::tensor({2.0, 1.0, -1.0, 3.0}, at::kDouble).view({2, 2});
  const NumberLosses classes = class_cross_entropy()->of(x, at::tensor({0, 0}, at::kLong), {});
  EXPECT_EQ(classes.notes_RN.sum().item<double>(), 1);
  const at::Tensor marks = at::tensor({1.0, 1.0, 1.0, 1.0}, at::kDouble).view({2, 2});
  EXPECT_EQ(binary_cross_entropy()->of(x, {}, marks).notes_RN.sum().item<double>(), 1);
}

TEST(NumberLoss, AFoundGradientIsWhatItWasGiven) {
  const at::Tensor given = at::tensor({0.5, -0.25, 7.0}, at::kDouble).view({1, 3});
  const NumberLosses found = found_gradient()->of(numbers(1, 2), {}, given);
  EXPECT_EQ(found.loss_R.item<double>(), 7);
  EXPECT_TRUE(found.gradient_RK.equal(given.narrow(1, 0, 2)));
}

// Rows: return, value before the updates. New values lie within the clip of the old one, beyond it towards
// the return, and beyond it away from the return.
const at::Tensor kValued = at::tensor({1.0, 0.0, 1.0, 0.0, -1.0, 0.0, 2.0, 2.5}, at::kDouble).view({4, 2});
const at::Tensor kValues = at::tensor({0.1, 0.5, 0.5, 2.2}, at::kDouble).view({4, 1});

TEST(NumberLoss, ValuesCountAsFarAsTheyMayMove) {
  const NumberLosses found = clipped_value_error(0.2)->of(kValues, {}, kValued);
  // The second row went further towards its return than it may; the fourth has, too, and is clipped to 2.3.
  const double expected[] = {0.5 * 0.81, 0.5 * 0.64, 0.5 * 2.25, 0.5 * 0.09};
  const double gradients[] = {-0.9, 0, 1.5, 0};
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_NEAR(found.loss_R[row].item<double>(), expected[row], 1e-12) << row;
    EXPECT_NEAR(found.gradient_RK[row][0].item<double>(), gradients[row], 1e-12) << row;
  }
  EXPECT_EQ(found.notes_RN.sum().item<double>(), 2);
}

// Rounding decides nothing: a value that has not gone beyond its bounds keeps its gradient.
TEST(NumberLoss, ValuesWithinTheirBoundsAreNotClipped) {
  const at::Tensor old_R = at::linspace(-3, 3, 1001, at::kDouble);
  const at::Tensor value_RK = (old_R + at::linspace(0.19, -0.19, 1001, at::kDouble)).unsqueeze(1);
  const at::Tensor return_R = old_R * 0.3 + 1;
  const NumberLosses found = clipped_value_error(0.2)->of(value_RK, {}, at::stack({return_R, old_R}, 1));
  EXPECT_EQ(found.notes_RN.sum().item<double>(), 0);
  EXPECT_TRUE(at::equal(found.gradient_RK.squeeze(1), value_RK.squeeze(1) - return_R));
}

TEST(NumberLoss, ValuesWithoutAClipAreHalfOfSquaredErrors) {
  const NumberLosses found = clipped_value_error(0)->of(kValues, {}, kValued);
  EXPECT_NEAR(found.loss_R.sum().item<double>(),
              0.5 * (kValues.select(1, 0) - kValued.select(1, 0)).square().sum().item<double>(), 1e-12);
  EXPECT_EQ(found.notes_RN.sum().item<double>(), 0);
}

TEST(NumberLoss, WithoutFiguresThereIsNoLoss) {
  for (const auto& loss :
       {binary_cross_entropy(), squared_error(), found_gradient(), clipped_value_error(0.2)}) {
    const NumberLosses none = loss->of(numbers(2, 3), {}, {});
    EXPECT_EQ(none.loss_R.abs().sum().item<double>() + none.gradient_RK.abs().sum().item<double>(), 0);
  }
}

}  // namespace
}  // namespace sluice::layers
