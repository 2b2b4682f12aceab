// Norms of rows that are cut over TP ranks, beside the whole rows' norm.
#include "layers/rank_norm.h"

#include "layers/test_gradients.h"

namespace sluice::layers {
namespace {

// The columns of each rank; several ranks may have the same.
void expect_whole(const std::vector<base::Interval>& columns, int64_t whole_width) {
  const auto ranks = static_cast<int>(columns.size());
  int64_t counted = 0;
  for (const base::Interval& own : columns) counted += own.size();
  const at::Tensor x = waves({4, whole_width}, 1).requires_grad_(),
                   w = waves({whole_width}, 2).requires_grad_();
  const at::Tensor y = x / (x.square().mean(1, true) + 1e-3).sqrt() * (w + 1);
  // Each rank has a part of the gradient of columns that it shares.
  std::vector<at::Tensor> dy_of_rank;
  at::Tensor dy = at::zeros({4, whole_width}, at::kDouble);
  for (int rank = 0; rank < ranks; ++rank) {
    const base::Interval own = columns[static_cast<size_t>(rank)];
    dy_of_rank.push_back(waves({4, own.size()}, 3 + rank));
    dy.narrow(1, own.begin, own.size()).add_(dy_of_rank.back());
  }
  const std::vector<at::Tensor> expected = gradients_of(y, dy, {x, w});
  std::vector<at::Tensor> found_y(columns.size()), found_dx(columns.size()), found_dw(columns.size());
  on_ranks(ranks, [&](int rank, comm::Communicator& members) {
    const at::NoGradGuard none;
    const auto at = static_cast<size_t>(rank);
    const base::Interval own = columns[at];
    const RankNorm norm{{&members, ranks, rank}, counted, ranks, 1e-3, 1};
    const at::Tensor own_x = x.narrow(1, own.begin, own.size()).contiguous(),
                     own_w = w.narrow(0, own.begin, own.size());
    found_y[at] = norm.forward(own_x, own_w);
    found_dw[at] = at::zeros({own.size()}, at::kDouble);
    found_dx[at] = norm.backward(dy_of_rank[at], own_x, own_w, found_dw[at]);
    norm.backward(dy_of_rank[at], own_x, own_w, {});  // frozen weights: the same exchanges
  });
  at::Tensor dx = at::zeros({4, whole_width}, at::kDouble), dw = at::zeros({whole_width}, at::kDouble);
  for (size_t rank = 0; rank < columns.size(); ++rank) {
    const base::Interval own = columns[rank];
    expect_near(found_y[rank], y.narrow(1, own.begin, own.size()), "forward");
    dx.narrow(1, own.begin, own.size()).add_(found_dx[rank]);
    dw.narrow(0, own.begin, own.size()).add_(found_dw[rank]);
  }
  expect_near(dx, expected[0], "dx");
  expect_near(dw, expected[1], "dw");
}

TEST(RankNorm, CutRowsAreNormedAsWholeOnes) {
  expect_whole({{0, 6}}, 6);
  expect_whole({{0, 3}, {3, 6}}, 6);
  expect_whole({{0, 2}, {2, 4}, {4, 6}, {6, 8}}, 8);
}

// Two key heads on four ranks.
TEST(RankNorm, ColumnsOnSeveralRanksCountOnceInSum) { expect_whole({{0, 3}, {0, 3}, {3, 6}, {3, 6}}, 6); }

}  // namespace
}  // namespace sluice::layers
