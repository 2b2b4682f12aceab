#include "plan/improve.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

constexpr int kEightRanks = 8;

struct Case {
  explicit Case(const std::string& text, int64_t device_bytes = 128'000'000)
      : cost(test_cost(device_bytes)),
        strategy(strategy::parse_strategy(text, kEightRanks)),
        scheme(strategy.pipelines[0].scheme, cost, kEightRanks),
        packing(strategy.pipelines[0], scheme, {}, {}, {}),
        improver(packing) {}

  TimedMicroBatches timed(std::vector<strategy::PipelineMicroBatch> micro_batches) {
    const int64_t ns = packing.timer.makespan_ns(micro_batches);
    return {.micro_batches = std::move(micro_batches), .makespan_ns = ns};
  }
  int64_t scheduled_ns(const std::vector<strategy::PipelineMicroBatch>& micro_batches) const {
    strategy::PipelinePlan plan{.pipeline = strategy.pipelines[0],
                                .micro_batches = in_injection_order(micro_batches, scheme.scheme().cp)};
    return schedule::schedule_pipeline(schedule::pipeline_load(plan, cost, kEightRanks)).makespan_ns;
  }

  cost::CostModel cost;
  strategy::Strategy strategy;
  SchemeCost scheme;
  Packing packing;
  MicroBatchImprover improver;
};

std::vector<strategy::PipelineMicroBatch> one_by_one(const std::vector<int64_t>& lengths) {
  std::vector<strategy::PipelineMicroBatch> micro_batches;
  for (const int64_t length : lengths)
    micro_batches.push_back({.sequences = {{static_cast<int32_t>(micro_batches.size()), length}}});
  return micro_batches;
}

std::vector<int64_t> lengths_in(const std::vector<strategy::PipelineMicroBatch>& micro_batches) {
  std::vector<int64_t> lengths;
  for (const strategy::PipelineMicroBatch& micro_batch : micro_batches) {
    for (const strategy::MicroBatchSequence& shared : micro_batch.sequences)
      lengths.push_back(shared.length_tokens);
    for (const auto& lane : micro_batch.own) {
      for (const strategy::MicroBatchSequence& whole : lane) lengths.push_back(whole.length_tokens);
    }
  }
  std::ranges::sort(lengths);
  return lengths;
}

TEST(MicroBatchImprover, EndsSoonerWithTheSameSequencesAndSaysWhen) {
  for (const char* text : {"<1,2,1>", "<1,3,1>", "<1,1,4>", "<1,2,2>", "<2,2,2>"}) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      Case of(text);
      base::Rng rng(seed, 71);
      std::vector<int64_t> lengths;
      for (int i = 0; i < 6; ++i) lengths.push_back(rng.between(1, of.scheme.lane_max_len_tokens() / 2));
      TimedMicroBatches best = of.timed(one_by_one(lengths));
      const int64_t before_ns = best.makespan_ns;
      of.improver.improve(best, 20'000);
      EXPECT_LT(best.makespan_ns, before_ns) << text << ", seed " << seed;
      EXPECT_EQ(best.makespan_ns, of.scheduled_ns(best.micro_batches)) << text << ", seed " << seed;
      std::ranges::sort(lengths);
      EXPECT_EQ(lengths_in(best.micro_batches), lengths) << text << ", seed " << seed;
    }
  }
}

TEST(MicroBatchImprover, StopsWhereItIsEnoughAndWithoutCells) {
  Case of("<1,2,2>");
  const std::vector<strategy::PipelineMicroBatch> micro_batches = one_by_one({500, 400, 300, 200});
  TimedMicroBatches best = of.timed(micro_batches);
  of.packing.options.enough_ns = best.makespan_ns;
  of.improver.improve(best, 20'000);
  EXPECT_EQ(best.micro_batches, micro_batches);
  of.packing.options.enough_ns = 0;
  of.improver.improve(best, 0);
  EXPECT_EQ(best.micro_batches, micro_batches);
}

TEST(MicroBatchImprover, UnitsStayWithinTheirLanesMemory) {
  Case of("<1,2,2>", 60'000'000);
  const int64_t most = of.scheme.lane_max_len_tokens();
  TimedMicroBatches best = of.timed(one_by_one({most, most / 2, most / 2, most / 3, most / 3, 7}));
  of.improver.improve(best, 20'000);
  for (const strategy::PipelineMicroBatch& micro_batch : best.micro_batches)
    EXPECT_LE(micro_batch.tokens(), most);
}

// Sequences that need no ring get none: one micro-batch per lane.
TEST(MicroBatchImprover, TakesRingsApartThatCostMoreThanTheySave) {
  Case of("<1,1,2>");
  std::vector<strategy::PipelineMicroBatch> rings;
  for (int i = 0; i < 4; ++i) rings.push_back({.lanes = 2, .sequences = {{i, 20}}, .number = i});
  TimedMicroBatches best = of.timed(std::move(rings));
  of.improver.improve(best, 20'000);
  EXPECT_LE(best.micro_batches.size(), 2U);
}

}  // namespace
}  // namespace sluice::plan
