#include "ops/expert_assignments.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

namespace sluice::ops {
namespace {

TEST(Highest, EqualOnesAreTakenFromTheLeft) {
  const at::Tensor score = at::tensor({1.0, 3.0, 3.0, 0.5, 2.0, 2.0, 2.0, 2.0}, at::kDouble).view({2, 4});
  const at::Tensor expected = at::tensor({1, 2, 0, 0, 1, 2}, at::kInt).view({2, 3});
  EXPECT_TRUE(at::equal(highest(score, 3), expected));
  EXPECT_TRUE(at::equal(aten::highest(score, 3), expected));
}

TEST(Highest, IsWhatSortingChooses) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor score = at::rand({300, 17}, type);
    for (const int64_t k : {1, 2, 8, 17}) EXPECT_TRUE(at::equal(highest(score, k), aten::highest(score, k)));
  }
}

// Scores that are no numbers end in a loss that is none, which the run reports: here they must end anywhere.
TEST(Highest, WhatIsNoNumberChoosesDifferentExpertsAllTheSame) {
  const at::Tensor nothing = at::full({1, 4}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(at::equal(highest(nothing, 3), at::tensor({0, 1, 2}, at::kInt).view({1, 3})));
}

TEST(VisitsOf, AreByExpertThenByRow) {
  const at::Tensor id = at::tensor({2, 0, 0, 3, 2, 0}, at::kInt).view({3, 2});
  for (const ExpertAssignments& visits : {expert_assignments_of(id, 5), aten::expert_assignments_of(id, 5)}) {
    EXPECT_EQ(visits.begins, (std::vector<int64_t>{0, 3, 3, 5, 6, 6}));
    EXPECT_TRUE(at::equal(visits.row_V, at::tensor({0, 1, 2, 0, 2, 1}, at::kLong)));
    EXPECT_TRUE(at::equal(visits.slot_V, at::tensor({1, 2, 5, 0, 4, 3}, at::kLong)));
  }
}

TEST(AddToRows, AddsEachRowWhereItBelongs) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor to = at::rand({40, 33}).to(type), from = at::rand({13, 33}).to(type);
    const at::Tensor rows = at::randperm(40, at::kLong).narrow(0, 0, 13);
    const at::Tensor expected = to.clone();
    aten::add_to_rows(expected, rows, from);
    add_to_rows(to, rows, from);
    EXPECT_TRUE(at::allclose(to, expected));
  }
}

}  // namespace
}  // namespace sluice::ops
