#include "schedule/tied_makespan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "schedule/test_cells.h"

namespace sluice::schedule {
namespace {

using base::Rng;

// Rings of any widths among single units, with every mixture of tight and ample credit, no, short and long
// transfers, and cells that take no time.
PipelineLoad random_load(uint64_t seed) {
  Rng rng(seed, 12);
  PipelineLoad load{.stages = static_cast<int>(rng.between(2, 5)),
                    .lanes = static_cast<int>(rng.between(2, 9))};
  load.credit_tokens = rng.between(100, 500);
  const CellRange cells = draw_range(rng);
  const bool fused = rng.below(4) == 0;
  const uint64_t rings = rng.below(6);
  for (int64_t units = rng.between(0, 60); units > 0; --units) {
    TimedUnit unit{.first_lane = static_cast<int>(rng.below(static_cast<uint64_t>(load.lanes))),
                   .tokens = rng.between(1, 100),
                   .fused = fused};
    if (rng.below(6) < rings) unit.lanes = static_cast<int>(rng.between(1, load.lanes - unit.first_lane));
    draw_cells(rng, load.stages, cells, unit);
    load.units.push_back(unit);
  }
  return load;
}

TiedUnits table_of(const PipelineLoad& load) {
  TiedUnits units(load.stages);
  for (const TimedUnit& unit : load.units) units.append(unit);
  return units;
}

TEST(TiedMakespan, EqualsTheScheduleOfRandomLoads) {
  TiedMakespan makespan;
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    const PipelineLoad load = random_load(seed);
    const TiedUnits units = table_of(load);
    const int64_t expected = schedule_pipeline(load).makespan_ns;
    ASSERT_EQ(makespan.of(units, load.lanes, load.credit_tokens), expected) << "seed " << seed;
    ASSERT_EQ(makespan.of(units, load.lanes, load.credit_tokens, expected), expected) << "seed " << seed;
    if (expected == 0) continue;
    ASSERT_EQ(makespan.of(units, load.lanes, load.credit_tokens, expected - 1), TiedMakespan::kLate) << seed;
  }
}

}  // namespace
}  // namespace sluice::schedule
