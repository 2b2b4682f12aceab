#include "ops/grouped_product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace sluice::ops {
namespace {

TEST(GroupedRows, AreByGroupThenByRow) {
  const at::Tensor id = at::tensor({2, 0, 0, 3, 2, 0}, at::kInt).view({3, 2});
  const GroupedRows rows = grouped_rows_of(id, 5);
  EXPECT_TRUE(at::equal(rows.end_G, at::tensor({3, 3, 5, 6, 6}, at::kInt)));
  EXPECT_TRUE(at::equal(rows.group_V, at::tensor({0, 0, 0, 2, 2, 3}, at::kInt)));
  EXPECT_TRUE(at::equal(rows.row_V, at::tensor({0, 1, 2, 0, 2, 1}, at::kLong)));
  EXPECT_TRUE(at::equal(rows.slot_V, at::tensor({1, 2, 5, 0, 4, 3}, at::kLong)));
  EXPECT_TRUE(at::equal(rows.place_TK, at::tensor({0, 3, 1, 5, 2, 4}, at::kLong).view({3, 2})));
}

TEST(GroupedRows, IdsBehindTheLastGroupComeLast) {
  const at::Tensor id = at::tensor({2, 0, 1, 2}, at::kInt).view({2, 2});
  const GroupedRows rows = grouped_rows_of(id, 2);
  EXPECT_TRUE(at::equal(rows.end_G, at::tensor({1, 2}, at::kInt)));
  EXPECT_TRUE(at::equal(rows.slot_V, at::tensor({1, 2, 0, 3}, at::kLong)));
}

TEST(GroupedRows, CountsAreThoseOfEachId) {
  const at::Tensor id = at::tensor({2, 0, 0, 3}, at::kInt).view({2, 2});
  EXPECT_TRUE(at::equal(counts_of(id, 5), at::tensor({2, 0, 1, 1, 0}, at::kLong)));
}

// Groups of rows, one of them empty, and rows that belong to none.
struct Groups {
  at::Tensor end = at::tensor({5, 5, 16, 24}, at::kInt);
  int64_t rows = 27;

  template <typename Visit>
  void for_each(Visit visit) const {
    int64_t begin = 0;
    for (int64_t group = 0; group < end.size(0); ++group) {
      const int64_t behind = end[group].item<int64_t>();
      visit(group, begin, behind - begin);
      begin = behind;
    }
  }
};

TEST(GroupedProduct, MultipliesEachGroupWithItsOwnMatrix) {
  const Groups groups;
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const double tolerance = type == at::kBFloat16 ? 0.05 : 1e-5;
    const at::Tensor x = at::rand({groups.rows, 16}).to(type), w = at::rand({4, 16, 8}).to(type);
    const at::Tensor transposed = w.transpose(1, 2).contiguous().transpose(1, 2);
    const at::Tensor y = grouped_product(x, w, groups.end), z = grouped_product(x, transposed, groups.end);
    groups.for_each([&](int64_t group, int64_t begin, int64_t size) {
      const at::Tensor expected = x.narrow(0, begin, size).mm(w[group]);
      EXPECT_TRUE(at::allclose(y.narrow(0, begin, size), expected, tolerance, tolerance));
      EXPECT_TRUE(at::allclose(z.narrow(0, begin, size), expected, tolerance, tolerance));
    });
    EXPECT_FALSE(grouped_products_wait(x, w));
  }
}

TEST(GroupedProduct, GradientsAddToThoseOfTheirGroup) {
  const Groups groups;
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16}) {
    const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor a = at::rand({groups.rows, 16}).to(type), b = at::rand({groups.rows, 8}).to(type);
    const at::Tensor gradient = at::rand({4, 16, 8}, wide), before = gradient.clone();
    add_grouped_gradient(gradient, a, b, groups.end);
    groups.for_each([&](int64_t group, int64_t begin, int64_t size) {
      const at::Tensor product = a.narrow(0, begin, size).t().to(wide).mm(b.narrow(0, begin, size).to(wide));
      EXPECT_TRUE(at::allclose(gradient[group], before[group] + product, 1e-5, 1e-5));
    });
  }
}

// ATen's operator, called as for a GPU: its demands on strides are the same on a CPU.
TEST(GroupedProduct, AtensOperatorTakesTheSameOperands) {
  const Groups groups;
  const at::Tensor x = at::rand({groups.rows, 16}).to(at::kBFloat16),
                   b = at::rand({groups.rows, 8}).to(at::kBFloat16),
                   w = at::rand({4, 8, 16}).to(at::kBFloat16).transpose(1, 2);
  const auto own = [](const at::Tensor& all) { return all.narrow(0, 0, 24).to(at::kFloat); };
  EXPECT_TRUE(at::allclose(own(aten::grouped_product(x, w, groups.end)),
                           own(grouped_product(x, w, groups.end)), 0.02, 0.02));
  for (const int64_t most_bytes : {int64_t{1}, int64_t{1} << 20}) {
    const at::Tensor found = at::ones({4, 16, 8}), expected = at::ones({4, 16, 8});
    const at::Tensor a = x.narrow(0, 0, 24), c = b.narrow(0, 0, 24);
    // On a CPU the operator leaves groups without rows as they are in memory.
    const at::Tensor end = at::tensor({5, 8, 16, 24}, at::kInt);
    aten::add_grouped_gradient(found, a, c, end, most_bytes);
    add_grouped_gradient(expected, a, c, end);
    EXPECT_TRUE(at::allclose(found, expected, 0.02, 0.02));
  }
}

TEST(GroupedProduct, SumsAreOverTheAssignmentsOfARow) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor y = at::rand({6, 5}).to(type);
    const at::Tensor place = at::tensor({0, 3, 1, 5, 2, 4}, at::kLong).view({3, 2});
    const at::Tensor sums = sums_by_row(y, place);
    for (int64_t row = 0; row < 3; ++row) {
      const at::Tensor expected = y[place[row][0].item<int64_t>()] + y[place[row][1].item<int64_t>()];
      EXPECT_TRUE(at::allclose(sums[row], expected, 0.01, 0.01));
    }
    const at::Tensor some = sums_by_row(y.narrow(0, 0, 2), place);
    EXPECT_TRUE(at::equal(some[0], y[0]));
    EXPECT_TRUE(at::equal(some[1], y[1]));
    EXPECT_TRUE(at::equal(some[2], at::zeros({5}, type)));
    EXPECT_TRUE(at::equal(sums_by_row(y.narrow(0, 0, 0), place), at::zeros({3, 5}, type)));
  }
}

}  // namespace
}  // namespace sluice::ops
