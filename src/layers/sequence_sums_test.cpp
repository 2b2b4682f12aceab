// Sums and means by sequence, whose rows lie on TP ranks and lanes, beside the whole sequences'.
#include "layers/sequence_sums.h"

#include "layers/balance.h"
#include "layers/test_gradients.h"
#include "model/test_outline.h"

namespace sluice::layers {
namespace {

// A lane's rows of sequences: the first ones are shared with other lanes, then its own.
SequenceRows rows_of_lane(const std::vector<int64_t>& sequence_of_row, std::vector<int64_t> lengths,
                          int64_t shared, std::vector<int> others) {
  return {at::tensor(sequence_of_row, at::kLong), std::move(lengths), shared, std::move(others)};
}

LayerContext context_of(const TensorParallel& parallel, LaneChannel* lanes) {
  LayerContext context{.model = model::outline_of_12_heads(1), .parallel = parallel};
  context.lanes = lanes;
  return context;
}

// Sequence 0 has two rows here and one elsewhere; sequence 1 has two; the last row is inert.
TEST(SequenceSums, MeansAreOverAllTokensOfASequence) {
  const at::Tensor first = waves({5, 3}, 1), second = waves({1, 3}, 2);
  std::vector<at::Tensor> means(2);
  on_ranks(2, [&](int lane, comm::Communicator& members) {
    LaneChannel channel(members);
    const LayerContext context = context_of({}, &channel);
    const SequenceRows rows =
        lane == 0 ? rows_of_lane({0, 1, 0, 1, 2}, {3, 2}, 1, {1}) : rows_of_lane({0}, {3}, 1, {0});
    means[static_cast<size_t>(lane)] = sequence_means(context, rows, lane == 0 ? first : second);
  });
  const at::Tensor shared = (first[0] + first[2] + second[0]) / 3;
  expect_near(means[0], at::stack({shared, (first[1] + first[3]) / 2, at::zeros({3}, at::kDouble)}));
  expect_near(means[1], at::stack({shared, at::zeros({3}, at::kDouble)}));
}

// ⟨mean(y), g⟩ = ⟨y, backward(g)⟩ over all ranks together.
TEST(SequenceSums, TheBackwardIsTheAdjoint) {
  constexpr int kTensorRanks = 2;
  const at::Tensor y = waves({6, 3}, 1), g = waves({3, 3}, 4);
  const SequenceRows rows = rows_of_lane({0, 0, 1, 1, 1, 2}, {2, 3}, 0, {});
  std::vector<at::Tensor> means(kTensorRanks), back(kTensorRanks);
  on_ranks(kTensorRanks, [&](int t, comm::Communicator& members) {
    const auto at = static_cast<size_t>(t);
    const LayerContext context = context_of({&members, kTensorRanks, t}, nullptr);
    means[at] = sequence_means(context, rows, y.narrow(0, int64_t{3} * t, 3));
    // Each rank computed one sequence's loss.
    back[at] = sequence_means_backward(context, rows, at::tensor({t}, at::kLong), g.narrow(0, t, 1), 3);
  });
  expect_near(means[0], means[1], "all TP ranks have all means", 0);
  const double forward = (means[0].narrow(0, 0, 2) * g.narrow(0, 0, 2)).sum().item<double>();
  EXPECT_NEAR(forward, (y * at::cat(back)).sum().item<double>(), 1e-12);
  expect_near(back[1].narrow(0, 2, 1), at::zeros({1, 3}, at::kDouble), "an inert row", 0);
}

TEST(Balance, SharesCountAssignmentsOfWholeSequences) {
  const at::Tensor here = at::tensor({0, 1, 0, 2, 3, 3, 0, 0}, at::kInt).view({4, 2});
  const at::Tensor there = at::tensor({1, 1}, at::kInt).view({1, 2});
  std::vector<at::Tensor> shares(2);
  on_ranks(2, [&](int lane, comm::Communicator& members) {
    LaneChannel channel(members);
    const SequenceRows rows =
        lane == 0 ? rows_of_lane({0, 0, 1, 2}, {3, 1}, 1, {1}) : rows_of_lane({0}, {3}, 1, {0});
    shares[static_cast<size_t>(lane)] =
        shares_of_assignments(&channel, rows, lane == 0 ? here : there, 4, at::dtype(at::kDouble));
  });
  // Sequence 0: experts 0, 1, 0, 2 here and 1, 1 there; f = 4 ÷ 6 assignments.
  const at::Tensor expected = at::tensor({2.0, 3.0, 1.0, 0.0}, at::kDouble) * 4 / 6;
  expect_near(shares[0][0], expected);
  expect_near(shares[1][0], expected);
  expect_near(shares[0][1], at::tensor({0.0, 0.0, 0.0, 4.0}, at::kDouble));
  expect_near(shares[0][2], at::zeros({4}, at::kDouble), "inert rows");
}

TEST(Balance, SharesOfALoadAreRelativeToItsMean) {
  expect_near(shares_of_loads(at::tensor({1.0, 3.0, 0.0, 0.0}, at::kDouble)),
              at::tensor({1.0, 3.0, 0.0, 0.0}, at::kDouble));
  expect_near(shares_of_loads(at::zeros({4}, at::kDouble)), at::ones({4}, at::kDouble),
              "before the first step");
}

}  // namespace
}  // namespace sluice::layers
