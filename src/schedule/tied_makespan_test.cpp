#include "schedule/tied_makespan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/rng.h"

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
  const int64_t least = rng.below(4) == 0 ? 0 : 1;
  const int64_t most = rng.below(3) == 0 ? 3 : 50;
  const int64_t most_transfer = std::array<int64_t, 3>{0, 5, 80}[static_cast<size_t>(rng.below(3))];
  const bool fused = rng.below(4) == 0;
  const uint64_t rings = rng.below(6);
  for (int64_t units = rng.between(0, 60); units > 0; --units) {
    Unit unit{.first_lane = static_cast<int>(rng.below(static_cast<uint64_t>(load.lanes))),
              .tokens = rng.between(1, 100),
              .fused = fused};
    if (rng.below(6) < rings) unit.lanes = static_cast<int>(rng.between(1, load.lanes - unit.first_lane));
    for (int stage = 0; stage < load.stages; ++stage) {
      unit.forward_ns.push_back(rng.between(least, most));
      unit.backward_input_ns.push_back(rng.between(least, most));
      unit.backward_weight_ns.push_back(rng.between(least, most));
      if (stage > 0) unit.transfer_ns.push_back(rng.between(0, most_transfer));
    }
    load.units.push_back(unit);
  }
  return load;
}

TiedUnits table_of(const PipelineLoad& load) {
  TiedUnits units(load.stages);
  for (const Unit& unit : load.units) units.append(unit);
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
