#include "schedule/recurrence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/never.h"
#include "base/rng.h"
#include "schedule/test_cells.h"
#include "schedule/test_reference.h"

namespace sluice::schedule {
namespace {

using base::Rng;

// Loads with every mixture of ample and tight credit, no, short and long transfers, even and uneven stages.
// Cells may take no time, policies may fuse backwards, and backwards may end early. On several lanes
// micro-batches of any widths lie among those of one lane.
PipelineLoad random_load(uint64_t seed, bool one_lane) {
  Rng rng(seed, one_lane ? 11 : 12);
  PipelineLoad load{.stages = static_cast<int>(rng.between(1, 6)),
                    .lanes = one_lane ? 1 : static_cast<int>(rng.between(2, 9))};
  load.credit_tokens = rng.between(100, 500);
  const CellRange cells = draw_range(rng);
  const uint64_t fused = rng.below(3);  // in quarters; 2 means all of them
  const uint64_t shared = rng.below(6);
  for (int64_t micro_batches = rng.between(0, one_lane ? 25 : 50); micro_batches > 0; --micro_batches) {
    TimedMicroBatch micro_batch{.first_lane = static_cast<int>(rng.below(static_cast<uint64_t>(load.lanes))),
                                .tokens = rng.between(1, 100)};
    micro_batch.fused = rng.below(4) < (fused == 2 ? 4 : fused);
    if (micro_batch.fused && rng.below(2) == 0) micro_batch.credit_tokens = rng.between(1, 100);
    if (rng.below(6) < shared)
      micro_batch.lanes = static_cast<int>(rng.between(1, load.lanes - micro_batch.first_lane));
    draw_cells(rng, load.stages, cells, micro_batch);
    load.micro_batches.push_back(micro_batch);
  }
  if (rng.below(3) == 0) end_backwards(static_cast<int>(rng.between(1, load.stages)), load);
  return load;
}

MicroBatchTable table_of(const PipelineLoad& load) {
  MicroBatchTable table(load.stages);
  for (const TimedMicroBatch& micro_batch : load.micro_batches) table.append(micro_batch);
  return table;
}

std::vector<int> all_of(const MicroBatchTable& table) {
  std::vector<int> order(static_cast<size_t>(table.micro_batches()));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

bool same(const Cell& a, const Cell& b) {
  return a.kind == b.kind && a.micro_batch == b.micro_batch && a.start_ns == b.start_ns &&
         a.end_ns == b.end_ns;
}

void expect_same(const PipelineSchedule& found, const PipelineSchedule& expected, uint64_t seed) {
  ASSERT_EQ(found.makespan_ns, expected.makespan_ns) << "seed " << seed;
  ASSERT_EQ(found.peak_tokens, expected.peak_tokens) << "seed " << seed;
  ASSERT_EQ(found.cells.size(), expected.cells.size());
  for (size_t stage = 0; stage < found.cells.size(); ++stage) {
    ASSERT_EQ(found.cells[stage].size(), expected.cells[stage].size());
    for (size_t lane = 0; lane < found.cells[stage].size(); ++lane) {
      ASSERT_TRUE(std::ranges::equal(found.cells[stage][lane], expected.cells[stage][lane], same))
          << "seed " << seed << " stage " << stage << " lane " << lane;
    }
  }
}

TEST(Recurrence, EveryCellAndEveryTimeIsTheReferences) {
  Recurrence recurrence;
  FlowBound bound;
  for (uint64_t seed = 0; seed < 8000; ++seed) {
    const PipelineLoad load = random_load(seed, seed % 2 == 0);
    const PipelineSchedule expected = reference_schedule(load);
    ASSERT_NO_FATAL_FAILURE(expect_same(schedule_pipeline(load), expected, seed));
    const MicroBatchTable table = table_of(load);
    const std::vector<int> order = all_of(table);
    const int64_t end_ns = expected.makespan_ns;
    const auto within = [&](int64_t limit_ns) {
      return recurrence.makespan_ns(table, order, load.lanes, load.credit_tokens, limit_ns);
    };
    ASSERT_EQ(within(base::kNever - 1), end_ns) << "seed " << seed;
    ASSERT_EQ(*std::ranges::max_element(recurrence.ends_ns()), end_ns) << "seed " << seed;
    ASSERT_EQ(within(end_ns), end_ns) << "seed " << seed;
    if (end_ns > 0) {
      ASSERT_EQ(within(end_ns - 1), base::kNever) << "seed " << seed;
    }
    ASSERT_LE(bound.at_least_ns(table, order, load.lanes, load.credit_tokens, base::kNever), end_ns)
        << "seed " << seed;
  }
}

TEST(FlowBound, OfSeveralLanesIsThatOfTheLatestLane) {
  FlowBound bound;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const PipelineLoad load = random_load(seed, false);
    const MicroBatchTable table = table_of(load);
    int64_t latest_ns = 0;
    for (int lane = 0; lane < load.lanes; ++lane) {
      std::vector<int> own = all_of(table);
      std::erase_if(own, [&](int row) {
        const MicroBatchTable::Head& head = table.head(row);
        return lane < head.first_lane || lane >= head.first_lane + head.lanes;
      });
      latest_ns = std::max(latest_ns, bound.at_least_ns(table, own, load.credit_tokens));
    }
    const auto least_ns = [&](int64_t enough_ns) {
      return bound.at_least_ns(table, all_of(table), load.lanes, load.credit_tokens, enough_ns);
    };
    ASSERT_EQ(least_ns(base::kNever), latest_ns) << "seed " << seed;
    if (latest_ns > 0) {
      ASSERT_GT(least_ns(latest_ns / 2), latest_ns / 2) << "seed " << seed;
    }
  }
}

TEST(Recurrence, TakesUnitsInTheOrderAsked) {
  Recurrence recurrence;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    PipelineLoad load = random_load(seed, true);
    const MicroBatchTable table = table_of(load);
    std::vector<int> order = all_of(table);
    std::ranges::reverse(order);
    std::ranges::reverse(load.micro_batches);
    ASSERT_EQ(recurrence.makespan_ns(table, order, 1, load.credit_tokens),
              reference_schedule(load).makespan_ns);
  }
}

TEST(Recurrence, OneStageNeverWaitsForCredit) {
  MicroBatchTable table(1);
  table.append({.tokens = 90, .forward_ns = {3}, .backward_input_ns = {4}, .backward_weight_ns = {5}});
  EXPECT_EQ(Recurrence().makespan_ns(table, all_of(table), 2, 50), 12);
}

}  // namespace
}  // namespace sluice::schedule
