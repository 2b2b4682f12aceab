#include "schedule/makespan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "schedule/test_cells.h"

namespace sluice::schedule {
namespace {

using base::Rng;

// Loads of one lane with every mixture of tight and ample credit, no, short and long transfers, even and
// uneven stages, and cells that take no time.
PipelineLoad random_load(uint64_t seed) {
  Rng rng(seed, 11);
  PipelineLoad load{.stages = static_cast<int>(rng.between(1, 7)), .lanes = 1};
  load.credit_tokens = rng.between(100, 500);
  const CellRange cells = draw_range(rng);
  const int64_t units = rng.between(0, 25);
  const bool policies = rng.below(3) == 0;
  for (int64_t u = 0; u < units; ++u) {
    TimedUnit unit{.tokens = rng.between(1, 100)};
    unit.fused = policies && rng.below(2) == 0;
    if (unit.fused) unit.credit_tokens = rng.between(1, 100);
    draw_cells(rng, load.stages, cells, unit);
    load.units.push_back(unit);
  }
  return load;
}

std::vector<int> all_of(const UnitTable& table) {
  std::vector<int> order(static_cast<size_t>(table.units()));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

TEST(Makespan, EqualsTheScheduleOfRandomLoads) {
  Makespan makespan;
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    const PipelineLoad load = random_load(seed);
    UnitTable table(load.stages);
    for (const TimedUnit& unit : load.units) table.append(unit);
    const std::vector<int> order = all_of(table);
    const int64_t expected = schedule_pipeline(load).makespan_ns;
    ASSERT_EQ(makespan.of(table, order, load.credit_tokens), expected) << "seed " << seed;
    ASSERT_EQ(makespan.of(table, order, load.credit_tokens, expected), expected) << "seed " << seed;
    ASSERT_EQ(makespan.of(table, order, load.credit_tokens, expected - 1), Makespan::kLate) << seed;
    ASSERT_LE(makespan.at_least_ns(table, order, load.credit_tokens), expected) << seed;
  }
}

TEST(Makespan, TakesUnitsInTheOrderAsked) {
  Makespan makespan;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    PipelineLoad load = random_load(seed);
    UnitTable table(load.stages);
    for (const TimedUnit& unit : load.units) table.append(unit);
    std::vector<int> order = all_of(table);
    std::reverse(order.begin(), order.end());
    std::reverse(load.units.begin(), load.units.end());
    ASSERT_EQ(makespan.of(table, order, load.credit_tokens), schedule_pipeline(load).makespan_ns);
  }
}

}  // namespace
}  // namespace sluice::schedule
