// Products with adapters beside the matrices that they stand for.
#include "layers/product.h"

#include "layers/test_gradients.h"

namespace sluice::layers {
namespace {

// A matrix [6, 5] with two adapters, on rows 0 to 2 and 3 to 5, and a plain one.
Matrix adapted_matrix() {
  return {.w_AB = waves({6, 5}, 1),
          .adapters = {{waves({3, 2}, 2), waves({2, 5}, 3), 0, 0.5},
                       {waves({3, 4}, 4), waves({4, 5}, 5), 3, 2.0}}};
}

at::Tensor sum_of(const Matrix& matrix) {
  at::Tensor sum = matrix.w_AB.clone();
  for (const Adapter& adapter : matrix.adapters)
    sum.narrow(0, adapter.first_row, adapter.left_NK.size(0))
        .add_(adapter.factor * adapter.left_NK.mm(adapter.right_KB));
  return sum;
}

TEST(Product, AdaptersAddTheirProductToTheirRows) {
  const Matrix matrix = adapted_matrix();
  const at::Tensor sum = sum_of(matrix), x = waves({4, 6}, 6), z = waves({4, 5}, 7), base = waves({4, 5}, 8);
  expect_near(times(x, matrix), x.mm(sum));
  expect_near(times_transposed(z, matrix), z.mm(sum.t()));
  const at::Tensor kept = base.clone();
  expect_near(add_times(base, x, matrix), base + x.mm(sum));
  expect_near(base, kept, "the base stays");
}

TEST(Product, GradientsOfAdaptersAreThoseOfTheSum) {
  const Matrix matrix = adapted_matrix();
  std::vector<at::Tensor> inputs{matrix.w_AB.detach().clone().requires_grad_()};
  at::Tensor sum = inputs[0];
  std::vector<at::Tensor> parts;
  for (const Adapter& adapter : matrix.adapters) {
    const at::Tensor left = adapter.left_NK.detach().clone().requires_grad_(),
                     right = adapter.right_KB.detach().clone().requires_grad_();
    inputs.insert(inputs.end(), {left, right});
    parts.push_back(adapter.factor * left.mm(right));
  }
  sum = sum + at::cat(parts, 0);
  const at::Tensor a = waves({4, 6}, 6), b = waves({4, 5}, 7);
  const std::vector<at::Tensor> expected = gradients_of(a.mm(sum), b, inputs);
  const auto zeros = [](const at::Tensor& like) { return at::zeros_like(like); };
  Matrix gradient{.w_AB = zeros(matrix.w_AB), .adapters = {}};
  for (const Adapter& own : matrix.adapters)
    gradient.adapters.push_back({zeros(own.left_NK), zeros(own.right_KB), own.first_row, own.factor});
  accumulate_gradient(gradient, adapter_rows(matrix, gradient, a, b), a, b);
  expect_near(gradient.w_AB, expected[0], "w");
  for (size_t i = 0; i < 2; ++i) {
    expect_near(gradient.adapters[i].left_NK, expected[1 + 2 * i], "left");
    expect_near(gradient.adapters[i].right_KB, expected[2 + 2 * i], "right");
  }
}

// A frozen base or factor has no gradient, and needs no rows.
TEST(Product, OnlyTrainedTensorsHaveGradients) {
  const Matrix matrix = adapted_matrix();
  Matrix gradient{.w_AB = {}, .adapters = {{{}, {}, 0, 0.5}, {at::zeros({3, 4}, at::kDouble), {}, 3, 2.0}}};
  EXPECT_TRUE(gradient.wanted());
  EXPECT_FALSE(gradient.defined());
  const at::Tensor a = waves({4, 6}, 6), b = waves({4, 5}, 7);
  const std::vector<AdapterRows> rows = adapter_rows(matrix, gradient, a, b);
  EXPECT_FALSE(rows[0].a_TK.defined());
  EXPECT_FALSE(rows[0].b_TK.defined());
  EXPECT_FALSE(rows[1].a_TK.defined());
  accumulate_gradient(gradient, rows, a, b);
  expect_near(gradient.adapters[1].left_NK,
              2 * a.narrow(1, 3, 3).t().mm(b.mm(matrix.adapters[1].right_KB.t())));
  gradient.adapters[1].left_NK = at::Tensor();
  EXPECT_FALSE(gradient.wanted());
  accumulate_gradient(at::Tensor(), a, b);
}

// In one engine step rows of several tuned models take their own adapters' columns.
TEST(Product, RowsTakeTheirOwnAdaptersColumns) {
  Matrix matrix{.w_AB = waves({6, 5}, 1), .adapters = {{waves({6, 4}, 2), waves({4, 5}, 3), 0, 1.0}}};
  const AdapterMask mask{
      .chosen_TK =
          at::tensor({1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0}, at::kDouble).view({3, 4}),
      .chosen_SK = {}};
  matrix.low_precision.rows = &mask;
  const at::Tensor x = waves({3, 6}, 6), found = times(x, matrix);
  const Adapter& all = matrix.adapters.front();
  for (int64_t row = 0; row < 3; ++row) {
    at::Tensor expected = x.narrow(0, row, 1).mm(matrix.w_AB);
    if (row < 2)
      expected =
          expected +
          x.narrow(0, row, 1).mm(all.left_NK.narrow(1, 2 * row, 2)).mm(all.right_KB.narrow(0, 2 * row, 2));
    expect_near(found.narrow(0, row, 1), expected, "row " + std::to_string(row));
  }
  // A TP rank's shard of the rows has a choice of its own.
  const AdapterMask shards{.chosen_TK = mask.chosen_TK, .chosen_SK = mask.chosen_TK.narrow(0, 2, 1)};
  at::Tensor narrow = waves({1, 4}, 8);
  shards.choose(narrow);
  expect_near(narrow, at::zeros({1, 4}, at::kDouble));
}

TEST(Product, ErrorsOfRoundingAreMeasuredBesideTheExactProduct) {
  GemmErrors errors{.format = base::GemmFormat::kInt8, .by_layer = {}};
  const at::Tensor w = waves({16, 32}, 1).to(at::kFloat), x = waves({8, 16}, 2).to(at::kFloat);
  const Matrix matrix{.w_AB = w, .adapters = {}, .low_precision = {.errors = &errors, .layer = 1}};
  expect_near(times(x, matrix), x.mm(w), "computed exactly", 1e-5);
  using enum GemmErrors::Figure;
  const auto figure = [&](GemmErrors::Figure of) { return errors.by_layer.at(1)[static_cast<size_t>(of)]; };
  EXPECT_EQ(figure(kForward).count, 1);
  EXPECT_GT(figure(kForward).sum, 0);
  EXPECT_LT(figure(kForward).sum, 1e-2) << "eight bits have two digits";
  errors.backward = true;
  times_transposed(waves({8, 32}, 3).to(at::kFloat), matrix);
  EXPECT_EQ(figure(kInputGradient).count, 1);
  const Matrix gradient{
      .w_AB = at::zeros({16, 32}, at::kFloat), .adapters = {}, .low_precision = matrix.low_precision};
  const at::Tensor b = waves({8, 32}, 4).to(at::kFloat);
  accumulate_gradient(gradient, {}, x, b);
  EXPECT_EQ(figure(kWeightGradient).count, 1);
  EXPECT_NEAR(figure(kGradientSquares).sum, x.t().mm(b).square().sum().item<double>(), 1e-2);
}

// The same matrix with codes that its products share, and without.
std::pair<Matrix, Matrix> float8_matrices(bool adapted) {
  Matrix one{.w_AB = waves({6, 5}, 1), .adapters = {}};
  if (adapted) one = adapted_matrix();
  one.low_precision.format = base::GemmFormat::kFloat8;
  Matrix other = one;
  one.codes = std::make_shared<ops::Float8Weight>();
  return {one, other};
}

TEST(Product, WeightsOf8BitFloatsAreCodedOnce) {
  for (const bool adapted : {false, true}) {
    const auto [coded, plain] = float8_matrices(adapted);
    const at::Tensor x = waves({4, 6}, 6), z = waves({4, 5}, 7), base = waves({4, 5}, 8);
    const at::Tensor forward = times(x, plain), backward = times_transposed(z, plain);
    EXPECT_FALSE(at::equal(forward, x.mm(sum_of(plain)))) << "rounded";
    expect_near(forward, x.mm(sum_of(plain)), "within the format", 0.4);
    for (int again = 0; again < 2; ++again) {
      expect_near(times(x, coded), forward);
      expect_near(times_transposed(z, coded), backward);
      expect_near(add_times(base, x, coded), base + forward);
      if (!adapted) coded.w_AB.zero_();  // the codes stay
    }
  }
}

TEST(Product, MagnitudesScaleProductsOf8BitFloats) {
  const at::Tensor x = waves({4, 6}, 6), z = waves({4, 5}, 7);
  std::vector<std::vector<at::Tensor>> found;
  for (const bool coded : {false, true}) {
    auto [with, without] = float8_matrices(/*adapted=*/true);
    Matrix& matrix = coded ? with : without;
    for (size_t i = 0; i < 2; ++i) matrix.adapters[i].magnitude_N = waves({3}, 9 + static_cast<int>(i)) + 2;
    decompose(matrix, {});
    Matrix gradient{.w_AB = {}, .adapters = {}};
    for (const Adapter& own : matrix.adapters)
      gradient.adapters.push_back({at::zeros_like(own.left_NK), at::zeros_like(own.right_KB), own.first_row,
                                   own.factor, at::zeros_like(own.magnitude_N)});
    accumulate_gradient(gradient, adapter_rows(matrix, gradient, x, z), x, z);
    found.push_back({times(x, matrix), times_transposed(z, matrix), gradient.adapters[1].left_NK,
                     gradient.adapters[1].magnitude_N});
  }
  for (size_t i = 0; i < found[0].size(); ++i) expect_near(found[1][i], found[0][i]);
}

}  // namespace
}  // namespace sluice::layers
