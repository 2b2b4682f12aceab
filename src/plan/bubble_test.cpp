#include "plan/bubble.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "base/text.h"
#include "plan/test_models.h"
#include "schedule/recurrence.h"

namespace sluice::plan {
namespace {

constexpr int kGpus = 8;

// Random micro-batches in a random order: no schedule lets a stage work longer.
TEST(Bubble, NoScheduleKeepsAStageBusyForLonger) {
  const cost::CostModel cost = test_cost(128'000'000, 8);
  for (uint64_t seed = 0; seed < 600; ++seed) {
    base::Rng rng(seed, 11);
    const strategy::Scheme scheme{1, static_cast<int>(rng.between(2, 8)), 1};
    const SchemeCost costs(scheme, cost, kGpus);
    const strategy::Pipeline pipeline =
        strategy::parse_strategy(base::text("<1,", scheme.pp, ",1>"), kGpus).pipelines.front();
    const schedule::MicroBatchTimes times(pipeline, cost);
    schedule::MicroBatchTable table(scheme.pp);
    std::vector<int> order;
    int64_t tokens = rng.between(1, costs.max_len_tokens());
    std::vector<int64_t> lengths;
    for (int64_t micro_batch = rng.between(1, 12); micro_batch > 0; --micro_batch) {
      order.push_back(table.micro_batches());
      table.resize(table.micro_batches() + 1);
      const std::vector<int64_t> in_micro_batch = {tokens - tokens / rng.between(2, 5), tokens / 5};
      lengths.insert(lengths.end(), in_micro_batch.begin(), in_micro_batch.end());
      times.write(cost::Work::of(in_micro_batch), table, order.back());
      // Growing micro-batches come nearest to the bound.
      tokens =
          std::min(costs.max_len_tokens(), rng.below(3) == 0 ? rng.between(1, tokens) : tokens * 5 / 4 + 1);
    }
    std::sort(lengths.rbegin(), lengths.rend());
    schedule::Recurrence recurrence;
    const int64_t end_ns = recurrence.makespan_ns(table, order, 1, int64_t{1} << 40);
    for (int stage = 0; stage < scheme.pp; ++stage) {
      int64_t busy_ns = 0;
      for (const int micro_batch : order)
        busy_ns += table.row(micro_batch)[static_cast<size_t>(stage)].all_ns();
      const int64_t constant_ns = costs.floors().constant_ns(stage);
      const Bubble bubble(costs, stage, lengths);
      for (const int64_t part_ns : {int64_t{0}, constant_ns / 2, constant_ns}) {
        const Bubble::Most most = bubble.most(end_ns, part_ns);
        ASSERT_LE(busy_ns - static_cast<int64_t>(order.size()) * part_ns, most.busy_ns)
            << "seed " << seed << " stage " << stage;
      }
    }
  }
}

TEST(Bubble, FewMicroBatchesWaitAndManyCostConstants) {
  const cost::CostModel cost = test_cost(128'000'000, 8);
  const SchemeCost scheme(strategy::Scheme{1, 4, 1}, cost, kGpus);
  const std::vector<int64_t> lengths = {scheme.max_len_tokens()};
  const Bubble bubble(scheme, 3, lengths);
  const int64_t constant_ns = scheme.floors().constant_ns(3);
  const int64_t short_ns = 4 * constant_ns, long_ns = 400 * constant_ns;
  const Bubble::Most shorter = bubble.most(short_ns, constant_ns);
  const Bubble::Most longer = bubble.most(long_ns, constant_ns);
  EXPECT_LT(shorter.micro_batches, longer.micro_batches);
  EXPECT_LT(longer.busy_ns, long_ns - longer.micro_batches * constant_ns);
  EXPECT_EQ(bubble.most(long_ns, 0).busy_ns, long_ns);
  EXPECT_EQ(Bubble(scheme, 0, lengths).most(constant_ns * 5, 10).busy_ns, constant_ns * 5 - 10);
}

// Growing stops at full ones, and the constants of so many have to be paid.
TEST(Bubble, MicroBatchesThatCannotGrowCostMoreConstants) {
  const cost::CostModel cost = test_cost(128'000'000, 8);
  const SchemeCost scheme(strategy::Scheme{1, 2, 1}, cost, kGpus);
  const std::vector<int64_t> longest = {scheme.max_len_tokens()};
  const std::vector<int64_t> shorter(1000, scheme.max_len_tokens() / 64);
  const int64_t constant_ns = scheme.floors().constant_ns(1);
  const int64_t end_ns = 20 * scheme.floors().fullest_ns(1, shorter);
  const Bubble bubble(scheme, 1, shorter);
  const Bubble::Most most = bubble.most(end_ns, constant_ns);
  EXPECT_LT(most.busy_ns, Bubble(scheme, 1, longest).most(end_ns, constant_ns).busy_ns);
  EXPECT_GE(most.micro_batches * scheme.floors().fullest_ns(1, shorter), most.busy_ns);
}

// A micro-batch has no more tokens than the batch, however many the device would hold.
TEST(Bubble, ADeviceOfAnySizeIsFullWithTheBatch) {
  const std::vector<int64_t> lengths = {300, 200, 7};
  const cost::CostModel large = test_cost(int64_t{1} << 56, 8), small = test_cost(128'000'000, 8);
  const SchemeCost of_large(strategy::Scheme{1, 1, 1}, large, kGpus),
      of_small(strategy::Scheme{1, 1, 1}, small, kGpus);
  ASSERT_GT(of_small.max_len_tokens(), 507);
  EXPECT_EQ(of_large.floors().fullest_ns(0, lengths), of_small.floors().fullest_ns(0, lengths));
}

}  // namespace
}  // namespace sluice::plan
