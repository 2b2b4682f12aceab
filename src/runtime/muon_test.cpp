// Muon beside its formulas, and under strategies beside one rank.
#include "runtime/muon.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "runtime/test_equivalence.h"

namespace sluice::runtime {
namespace {

TEST(Muon, NewtonSchulzBringsSingularValuesNearOne) {
  at::manual_seed(3);
  for (const auto& [rows, columns] : {std::pair{24, 24}, {8, 40}, {40, 8}, {1, 5}}) {
    const at::Tensor x = at::randn({rows, columns}, at::kDouble);
    const at::Tensor made = orthogonal(x, 5, 1e-7);
    const auto [u, s, vh] = at::linalg_svd(x, /*full_matrices=*/false);
    // The iteration keeps singular vectors: what it does to each singular value is the polynomial.
    at::Tensor values = s / x.norm().clamp_min(1e-7);
    for (int step = 0; step < 5; ++step)
      values = 3.4445 * values - 4.7750 * values.pow(3) + 2.0315 * values.pow(5);
    EXPECT_TRUE(at::allclose(made, at::matmul(u * values, vh), 1e-9, 1e-9)) << rows << " x " << columns;
  }
}

TEST(Muon, ZerosStayZeros) {
  EXPECT_TRUE(at::equal(orthogonal(at::zeros({3, 4}, at::kDouble), 5, 1e-7), at::zeros({3, 4}, at::kDouble)));
}

TEST(Muon, EachMatrixHasOneRankAndWorkIsSpread) {
  const model::ParameterTable table = model::parameter_table(model::shape_of_odd_sizes());
  const std::vector<HiddenMatrix> matrices = hidden_matrices(table);
  ASSERT_FALSE(matrices.empty());
  for (const HiddenMatrix& matrix : matrices) {
    EXPECT_EQ(matrix.elements.size(), matrix.rows * matrix.columns);
    EXPECT_GE(table.buckets[static_cast<size_t>(matrix.bucket)].layer, 0);  // neither embedding nor head
  }
  std::vector<int> count(3, 0);
  for (const int rank : matrix_ranks(matrices, 3)) ++count[static_cast<size_t>(rank)];
  EXPECT_GT(*std::ranges::min_element(count), 0);
}

RunOptions options() {
  RunOptions options;
  options.muon = Muon{};
  return options;
}

const RunRecord& one_rank() {
  static const RunRecord record = run_in_process(options());
  return record;
}

void expect_as_one_rank(int world_size, std::vector<std::string> strategies) {
  RunOptions own = options();
  own.world_size = world_size;
  own.strategies = std::move(strategies);
  runtime::expect_as_one_rank(std::move(own), {dealt_plan}, one_rank());
}

TEST(MuonEquivalence, LearnsOtherwiseThanAdamW) {
  RunOptions adam = options();
  adam.muon.reset();
  const RunRecord other = run_in_process(adam);
  EXPECT_EQ(one_rank().losses.front(), other.losses.front());
  EXPECT_NE(one_rank().losses.back(), other.losses.back());
  EXPECT_LT(one_rank().losses.back(), one_rank().losses.front());
}

TEST(MuonEquivalence, UnderTensorAndPipelineParallelism) {
  expect_as_one_rank(6, {"<3,2,1>", "<2,1,1> + <1,4,1>", "6x<1,1,1>"});
}

TEST(MuonEquivalence, OnLanesThatShare) { expect_as_one_rank(4, {"<1,1,4,4>", "<2,1,2,2>"}); }

}  // namespace
}  // namespace sluice::runtime
