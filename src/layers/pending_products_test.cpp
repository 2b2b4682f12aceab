// Weight gradients that are added later, beside the same products at once.
#include "layers/pending_products.h"

#include "layers/test_gradients.h"

namespace sluice::layers {
namespace {

Matrix zeros_matrix(at::IntArrayRef sizes) { return {.w_AB = at::zeros(sizes, at::kDouble), .adapters = {}}; }

TEST(PendingProducts, ProductsSumsAndMadeGradientsAreAddedToTheirSlots) {
  const at::Tensor a = waves({4, 3}, 1), b = waves({4, 5}, 2), made = waves({3, 5}, 3);
  PendingProducts pending;
  const int rows_a = pending.keep(a), rows_b = pending.keep(b);
  pending.product(0, {rows_a}, {rows_b});
  pending.product(0, {rows_a}, {rows_b});
  pending.product(1, {rows_a, {1, 3}}, {rows_b, {0, 2}});
  pending.column_sums(2, {rows_b});
  pending.made(0, made);
  const std::vector<Matrix> gradients{zeros_matrix({3, 5}), zeros_matrix({2, 2}), zeros_matrix({5, 1})};
  gradients[0].w_AB.fill_(1);
  pending.add_to(gradients, {});
  expect_near(gradients[0].w_AB, 2 * a.t().mm(b) + made + 1);
  expect_near(gradients[1].w_AB, a.narrow(1, 1, 2).t().mm(b.narrow(1, 0, 2)));
  expect_near(gradients[2].w_AB, b.sum(0).view({5, 1}));
}

// Rows count as kept until the last product that reads them is added.
TEST(PendingProducts, RowsAreKeptOnceAndFreedWithTheirLastProduct) {
  PendingProducts pending;
  const int rows = pending.keep(waves({4, 3}, 1));
  pending.product(0, {rows}, {rows});
  pending.column_sums(1, {rows});
  EXPECT_EQ(pending.bytes(), 4 * 3 * 8);
  const std::vector<Matrix> gradients{zeros_matrix({3, 3}), zeros_matrix({3, 1})};
  pending.add_to(gradients, {});
  EXPECT_EQ(pending.bytes(), 0);
  pending.add_to(gradients, {});  // nothing is left to add
  expect_near(gradients[1].w_AB, waves({4, 3}, 1).sum(0).view({3, 1}));
}

// A frozen matrix has no gradient; its rows are freed all the same.
TEST(PendingProducts, AGradientThatIsNotWantedIsLeftOut) {
  PendingProducts pending;
  const int rows = pending.keep(waves({4, 3}, 1));
  pending.product(0, {rows}, {rows});
  pending.add_to(std::vector<Matrix>(1), {});
  EXPECT_EQ(pending.bytes(), 0);
}

TEST(PendingProducts, RowsOfAllRanksAreGatheredAgainAfterTheyWereDropped) {
  const at::Tensor a = waves({6, 2}, 1), b = waves({6, 3}, 2);
  std::vector<at::Tensor> found(2);
  on_ranks(2, [&](int t, comm::Communicator& members) {
    const TensorParallel parallel{&members, 2, t};
    PendingProducts pending;
    const int own = pending.keep(a.narrow(0, int64_t{3} * t, 3).contiguous(), a), all = pending.keep(b);
    pending.product(0, {.rows = own, .gathered = true}, {all});
    EXPECT_EQ(pending.bytes(), 8 * (3 * 2 + 6 * 2 + 6 * 3));
    pending.drop_gathered();
    EXPECT_EQ(pending.bytes(), 8 * (3 * 2 + 6 * 3));
    const std::vector<Matrix> gradients{zeros_matrix({2, 3})};
    pending.add_to(gradients, parallel);
    found[static_cast<size_t>(t)] = gradients[0].w_AB;
  });
  for (const at::Tensor& each : found) expect_near(each, a.t().mm(b));
}

// Assignments in the order of experts, of which this rank has the first two.
TEST(PendingProducts, ExpertsGetTheProductsOfTheirOwnRows) {
  const at::Tensor id = at::tensor({1, 0, 2, 1, 1, 2}, at::kInt).view({3, 2}), b = waves({3, 4}, 2);
  const at::Tensor a = waves({6, 3}, 1);  // expert 0: row 0; 1: rows 0, 1, 2; 2: rows 1, 2
  PendingProducts pending;
  const int rows_a = pending.keep(a), rows_b = pending.keep(b);
  pending.visits(0, {rows_a}, {rows_b}, {.id_TK = id, .experts = 3, .own = 2});
  const std::vector<Matrix> gradients{zeros_matrix({6, 4})};
  pending.add_to(gradients, {});
  expect_near(gradients[0].w_AB,
              at::cat({a.narrow(0, 0, 1).t().mm(b.narrow(0, 0, 1)), a.narrow(0, 1, 3).t().mm(b)}));
  EXPECT_EQ(pending.bytes(), 0);
}

TEST(PendingProducts, AdaptersNeedNoParametersLater) {
  const Matrix matrix{.w_AB = waves({3, 5}, 1), .adapters = {{waves({3, 2}, 2), waves({2, 5}, 3), 0, 0.5}}};
  Matrix gradient{.w_AB = {},
                  .adapters = {{at::zeros({3, 2}, at::kDouble), at::zeros({2, 5}, at::kDouble), 0, 0.5}}};
  const at::Tensor a = waves({4, 3}, 4), b = waves({4, 5}, 5);
  PendingProducts pending;
  const int rows_a = pending.keep(a), rows_b = pending.keep(b);
  pending.product(0, {rows_a}, {rows_b}, adapter_rows(matrix, gradient, a, b));
  EXPECT_EQ(pending.bytes(), 8 * (4 * 3 + 4 * 5 + 2 * 4 * 2));
  pending.add_to({&gradient, 1}, {});
  const at::Tensor d = a.t().mm(b);
  expect_near(gradient.adapters[0].left_NK, 0.5 * d.mm(matrix.adapters[0].right_KB.t()));
  expect_near(gradient.adapters[0].right_KB, 0.5 * matrix.adapters[0].left_NK.t().mm(d));
}

}  // namespace
}  // namespace sluice::layers
