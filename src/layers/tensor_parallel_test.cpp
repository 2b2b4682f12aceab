// Rows that TP ranks gather, and sums that they scatter.
#include "layers/tensor_parallel.h"

#include "layers/test_gradients.h"

namespace sluice::layers {
namespace {

TEST(TensorParallel, RowsAreGatheredInTheOrderOfRanks) {
  for (const int tp : {1, 2, 4}) {
    const at::Tensor all = waves({int64_t{3} * tp, 5}, 1);
    std::vector<at::Tensor> gathered(static_cast<size_t>(tp));
    on_ranks(tp, [&](int rank, comm::Communicator& members) {
      const TensorParallel parallel{tp > 1 ? &members : nullptr, tp, rank};
      const base::Interval own = parallel.shard_rows(int64_t{3} * tp);
      gathered[static_cast<size_t>(rank)] =
          parallel.all_gather_rows(all.narrow(0, own.begin, own.size()).contiguous());
    });
    for (const at::Tensor& each : gathered) expect_near(each, all, "tp " + std::to_string(tp), 0);
  }
}

// In the order of ranks, so that the sum's bits don't depend on who adds.
TEST(TensorParallel, PartialSumsAreAddedInTheOrderOfRanks) {
  for (const int tp : {1, 2, 4}) {
    std::vector<at::Tensor> partial, scattered(static_cast<size_t>(tp));
    at::Tensor sum = at::zeros({int64_t{2} * tp, 3}, at::kFloat);
    for (int rank = 0; rank < tp; ++rank) {
      partial.push_back((waves({int64_t{2} * tp, 3}, rank) * std::pow(1e4, rank)).to(at::kFloat));
      sum = rank == 0 ? partial.back().clone() : sum + partial.back();
    }
    on_ranks(tp, [&](int rank, comm::Communicator& members) {
      const TensorParallel parallel{tp > 1 ? &members : nullptr, tp, rank};
      scattered[static_cast<size_t>(rank)] = parallel.reduce_scatter_rows(partial[static_cast<size_t>(rank)]);
    });
    expect_near(at::cat(scattered), sum, "tp " + std::to_string(tp), 0);
  }
}

// 16-bit rows keep their bits on the way.
TEST(TensorParallel, NarrowRowsTravelAsTheyAre) {
  const at::Tensor all = waves({4, 3}, 1).to(at::kBFloat16);
  on_ranks(2, [&](int rank, comm::Communicator& members) {
    const TensorParallel parallel{&members, 2, rank};
    const at::Tensor found = parallel.all_gather_rows(all.narrow(0, int64_t{2} * rank, 2).contiguous());
    EXPECT_TRUE(found.equal(all));
  });
}

}  // namespace
}  // namespace sluice::layers
