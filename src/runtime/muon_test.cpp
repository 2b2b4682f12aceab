// Muon compared with its formulas, and under strategies with one rank.
#include "runtime/muon.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/test_fake.h"
#include "cost/link_buffers.h"
#include "model/test_outline.h"
#include "runtime/test_equivalence.h"

namespace sluice::runtime {
namespace {

TEST(Muon, NewtonSchulzBringsSingularValuesNearOne) {
  at::manual_seed(3);
  for (const auto& [rows, columns] : {std::pair{24, 24}, {8, 40}, {40, 8}, {1, 5}}) {
    const at::Tensor x = at::randn({rows, columns}, at::kDouble);
    const at::Tensor made = orthogonal(x, 5, 1e-7);
    const auto [u, s, vh] = at::linalg_svd(x, /*full_matrices=*/false);
    // The iteration keeps singular vectors and applies its polynomial to each singular value.
    at::Tensor values = s / x.norm().clamp_min(1e-7);
    for (int step = 0; step < 5; ++step)
      values = 3.4445 * values - 4.7750 * values.pow(3) + 2.0315 * values.pow(5);
    EXPECT_TRUE(at::allclose(made, at::matmul(u * values, vh), 1e-9, 1e-9)) << rows << " x " << columns;
  }
}

// Results of torch.optim.Muon (2.11, on a CPU), whose products are in bfloat16.
TEST(Muon, NewtonSchulzGivesTorchsNumbers) {
  const auto made = [](int64_t rows, int64_t columns) {
    const at::Tensor x = at::arange(1, rows * columns + 1, at::kDouble).sin().to(at::kFloat);
    return orthogonal(x.view({rows, columns}), 5, 1e-7).to(at::kFloat).contiguous().view(-1);
  };
  const auto expect = [](const at::Tensor& x, const std::vector<float>& torch) {
    EXPECT_TRUE(at::allclose(x, at::tensor(torch), 0.0, 1.0 / 128)) << x;
  };
  expect(made(3, 2), {0.30078125F, 0.48046875F, 0.484375F, -0.8046875F, -0.703125F, 0.1884765625F});
  expect(made(2, 5), {0.5F, 0.56640625F, 0.1103515625F, -0.44921875F, -0.58984375F, -0.1328125F, 0.384765625F,
                      0.55078125F, 0.208984375F, -0.326171875F});
}

at::Tensor stored_matrix(const at::Tensor& flat, const link::WholeMatrix& matrix) {
  return flat.narrow(0, matrix.elements.begin, matrix.elements.size()).view({matrix.rows, matrix.columns});
}

// The lines of torch.optim.Muon, on one rank, in double, after clipping; all else stays unchanged.
TEST(Muon, UpdatesAsItsFormulasSay) {
  for (const bool matches_adamw : {true, false}) {
    const model::ParameterTable table = model::parameter_table(model::outline_of_odd_sizes());
    ParameterStore store(table, {.precision = {comm::DType::kFloat64}});
    initialize(store, 5);
    comm::FakeWorld world(1);
    const std::unique_ptr<comm::Transport> transport = world.transport(0);
    const std::unique_ptr<comm::Communicator> all = transport->communicator("all", {0});
    std::vector<at::Tensor> expected, momenta, before;
    const std::vector<link::WholeMatrix> matrices = link::whole_matrices(table);
    for (const model::Bucket& bucket : table.buckets)
      before.push_back(store.owner(bucket.index).master.clone());
    for (const link::WholeMatrix& matrix : matrices) {
      expected.push_back(stored_matrix(before[static_cast<size_t>(matrix.bucket)], matrix).clone());
      momenta.push_back(at::zeros_like(expected.back()));
    }
    for (int64_t number = 1; number <= 2; ++number) {
      const AdamW options{.lr = 0.02,
                          .weight_decay = 0.1,
                          .clip = 0.5,
                          .update = number,
                          .muon = Muon{.matches_adamw = matches_adamw}};
      constexpr double kNorm = 2;  // so that gradients of three targets shrink to a quarter of the mean one
      for (const model::Bucket& bucket : table.buckets) {
        const at::Tensor& gradient = store.owner(bucket.index).gradient;
        gradient.copy_((at::arange(gradient.numel(), at::kDouble) * static_cast<double>(number)).sin());
      }
      for (size_t i = 0; i < matrices.size(); ++i) {
        const link::WholeMatrix& matrix = matrices[i];
        const at::Tensor gradient =
            stored_matrix(store.owner(matrix.bucket).gradient, matrix) * options.gradient_scale(3, kNorm);
        momenta[i].lerp_(gradient, 0.05);
        at::Tensor x = gradient.lerp(momenta[i], 0.95);
        if (matrix.outputs_last) x = x.t();
        const auto rows = static_cast<double>(x.size(0)), columns = static_cast<double>(x.size(1));
        const double factor = matches_adamw ? 0.2 * std::sqrt(std::max(rows, columns))
                                            : std::sqrt(std::max(1.0, rows / columns));
        at::Tensor made = orthogonal(x, 5, 1e-7);
        if (matrix.outputs_last) made = made.t();
        expected[i].mul_(1 - 0.02 * 0.1).sub_(made * (0.02 * factor));
      }
      update_matrices(store, options, /*targets=*/3, kNorm, *all);
    }
    for (size_t i = 0; i < matrices.size(); ++i) {
      const at::Tensor& master = store.owner(matrices[i].bucket).master;
      EXPECT_TRUE(at::allclose(stored_matrix(master, matrices[i]), expected[i], 1e-12, 1e-12)) << i;
      stored_matrix(master, matrices[i])
          .copy_(stored_matrix(before[static_cast<size_t>(matrices[i].bucket)], matrices[i]));
    }
    for (const model::Bucket& bucket : table.buckets)
      EXPECT_TRUE(at::equal(store.owner(bucket.index).master, before[static_cast<size_t>(bucket.index)]));
  }
}

TEST(Muon, ZerosStayZeros) {
  EXPECT_TRUE(at::equal(orthogonal(at::zeros({3, 4}, at::kDouble), 5, 1e-7), at::zeros({3, 4}, at::kDouble)));
}

TEST(Muon, EachMatrixHasOneRankAndWorkIsSpread) {
  const model::ParameterTable table = model::parameter_table(model::outline_of_odd_sizes());
  const std::vector<link::WholeMatrix> matrices = link::whole_matrices(table);
  ASSERT_FALSE(matrices.empty());
  for (const link::WholeMatrix& matrix : matrices) {
    EXPECT_EQ(matrix.elements.size(), matrix.rows * matrix.columns);
    EXPECT_GE(table.buckets[static_cast<size_t>(matrix.bucket)].layer, 0);  // neither embedding nor head
  }
  std::vector<int> count(3, 0);
  for (const int rank : link::matrix_ranks(matrices, 3)) ++count[static_cast<size_t>(rank)];
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

// Whole matrices and their iterations are the fullest moment of a step of few tokens.
TEST(MuonMemory, IsPredicted) {
  for (const char* strategy : {"2x<1,1,1>", "<2,1,1>"}) {
    RunOptions own = options();
    own.world_size = 2;
    own.steps = 2;
    own.model.hidden = 96;
    own.model.ffn_hidden = 256;
    own.strategies = {strategy};
    const RunRecord record = run_in_process(own);
    for (size_t rank = 0; rank < 2; ++rank) {
      const int64_t counted = record.peak_bytes[1][rank], predicted = record.predicted_peak_bytes[1][rank];
      EXPECT_LE(counted, predicted) << strategy;
      EXPECT_GE(1.1 * static_cast<double>(counted), static_cast<double>(predicted - cost::kSmallTensorBytes))
          << strategy;
    }
  }
}

}  // namespace
}  // namespace sluice::runtime
