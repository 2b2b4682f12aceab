#include "plan/lane_stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

using strategy::Scheme;

// A pipeline with everything that planning it asks for.
struct StagedSetting {
  explicit StagedSetting(const Scheme& scheme) : cost(test_cost()), priced(scheme, cost, scheme.ranks()) {
    pipeline.scheme = scheme;
    pipeline.ranks.resize(static_cast<size_t>(scheme.ranks()));
    std::iota(pipeline.ranks.begin(), pipeline.ranks.end(), 0);
  }
  TimedUnits pack(const std::vector<int64_t>& lengths) const {
    std::vector<int> members(lengths.size());
    std::iota(members.begin(), members.end(), 0);
    Packing packing(pipeline, priced, lengths, members, {});
    return *pack_staged_lanes(packing);
  }
  int64_t unit_ns(const strategy::Unit& unit) const {
    cost::Work work;
    for (const strategy::UnitSequence& sequence : unit.sequences)
      work += SchemeCost::fullest_share(sequence.length_tokens, unit.lanes);
    return priced.unit_ns(work, unit.lanes);
  }

  cost::CostModel cost;
  SchemeCost priced;
  strategy::Pipeline pipeline;
};

TEST(LaneStages, EverySequenceRunsOnceAndTheScoreIsTheSchedules) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    base::Rng rng(seed, 51);
    const StagedSetting setting(
        {.tp = 1, .pp = static_cast<int>(rng.between(2, 4)), .cp = static_cast<int>(rng.between(2, 12))});
    std::vector<int64_t> lengths;
    for (int64_t i = rng.between(1, 60); i > 0; --i) {
      const int64_t most = rng.below(4) == 0 ? setting.priced.max_len_tokens() : 500;
      lengths.push_back(rng.between(2, std::min<int64_t>(most, 20'000)));
    }
    const TimedUnits packed = setting.pack(lengths);
    std::vector<int> seen;
    for (const strategy::Unit& unit : packed.units) {
      for (const strategy::UnitSequence& sequence : unit.sequences) seen.push_back(sequence.sequence);
    }
    std::sort(seen.begin(), seen.end());
    std::vector<int> all(lengths.size());
    std::iota(all.begin(), all.end(), 0);
    ASSERT_EQ(seen, all) << "seed " << seed;
    const UnitTimer timer(setting.pipeline, setting.priced);
    const schedule::PipelineLoad load =
        schedule::pipeline_load(timer.plan(packed.units), setting.cost, setting.pipeline.scheme.ranks());
    ASSERT_EQ(packed.makespan_ns, schedule::schedule_pipeline(load).makespan_ns) << "seed " << seed;
  }
}

TEST(LaneStages, SmallUnitsRunFirstAndLast) {
  const StagedSetting setting({.pp = 4, .cp = 4});
  std::vector<int64_t> lengths;
  base::Rng rng(1, 52);
  for (int i = 0; i < 2000; ++i) lengths.push_back(rng.between(50, 800));
  const TimedUnits packed = setting.pack(lengths);
  for (const std::vector<int>& lane : strategy::units_by_lane(packed.units, 4)) {
    std::vector<int64_t> units_ns;
    for (const int unit : lane) {
      units_ns.push_back(setting.unit_ns(packed.units[static_cast<size_t>(unit)]));
    }
    const int64_t most_ns = *std::max_element(units_ns.begin(), units_ns.end());
    EXPECT_LT(units_ns.front(), most_ns / 2);
    EXPECT_LT(units_ns.back(), most_ns / 2);
  }
}

// One long sequence takes nearly all of the step on its lanes, so what is short runs on the others.
TEST(LaneStages, ShortWorkKeepsOutOfTheWayOfALongRing) {
  const StagedSetting setting({.pp = 4, .cp = 8});
  std::vector<int64_t> lengths(64, 200);
  lengths.push_back(setting.priced.lane_max_len_tokens() * 2);
  const int64_t alone_ns = setting.pack({lengths.back()}).makespan_ns;
  EXPECT_LE(setting.pack(lengths).makespan_ns, alone_ns + alone_ns / 50);
}

}  // namespace
}  // namespace sluice::plan
