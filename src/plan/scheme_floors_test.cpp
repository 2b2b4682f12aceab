#include "plan/scheme_floors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "cost/shipped.h"
#include "plan/scheme_cost.h"

namespace sluice::plan {
namespace {

// Lanes that follow each other from a place inside a node on.
cost::LanePlace place_of(int first, int lanes, int lanes_of_node) {
  std::vector<int> nodes;
  for (int lane = first; lane < first + lanes; ++lane) nodes.push_back(lane / lanes_of_node);
  return cost::LanePlace::of(nodes);
}

// The largest sum of floors of one micro-batch's sequences, and the time
// that its lanes wait at least, whatever their exchange; both by lane.
struct Exposure {
  int64_t floor_ns = 0;
  int64_t exposed_ns = 0;
};

Exposure exposure_of(const SchemeCost& scheme, const cost::Exchanges& exchanges, base::Rng& rng) {
  const int lanes = static_cast<int>(rng.between(2, 24));
  const int in_node = scheme.cost().options().topology.lanes_of_node(scheme.scheme().tp);
  const cost::LanePlace place = place_of(static_cast<int>(rng.below(8)), lanes, in_node);
  std::vector<int64_t> lengths;
  cost::Work shared;
  for (int64_t left = rng.between(1, 4); left > 0; --left) {
    const int64_t room = (scheme.lane_max_len_tokens() - shared.tokens) / 2 * 2 * lanes;
    if (room < 2 * lanes) break;
    lengths.push_back(rng.between(2 * lanes, rng.between(2 * lanes, std::min<int64_t>(room, 40'000))));
    shared += scheme.share_of(lengths.back(), lanes);
  }
  std::vector<int> runs = {1};  // lanes that exchange heads
  if (lanes <= exchanges.most_head_lanes()) runs.push_back(lanes);
  for (int run = 2; run < lanes && run <= exchanges.most_head_lanes(); ++run) {
    if (place.run % run == 0 && lanes % run == 0) runs.push_back(run);
  }
  const int run = runs[rng.below(runs.size())];
  const int64_t exposed_ns = exchanges.exposed(0, shared, place, run).both_ns();
  const SchemeFloors::RingLimits limits{
      .longest = std::ranges::max(lengths),
      .end_ns = scheme.load_ns(shared) + scheme.micro_batch_ns() + exposed_ns};
  Exposure exposure{.exposed_ns = exposed_ns * lanes / scheme.scheme().cp};
  for (const int64_t length : lengths) exposure.floor_ns += scheme.floors().ring_floor_ns(length, limits);
  return exposure;
}

TEST(SchemeFloors, NoUnitExposesLessThanItsSequencesAreChargedFor) {
  for (const char* calibration : {"a800-7b", "a800-13b", "a800-32b"}) {
    const cost::CostModel cost(cost::shipped(calibration).options);
    for (const int tp : {1, 2, 4}) {
      if (!cost.has_scheme({tp, 1, 32})) continue;
      const SchemeCost scheme({tp, 1, 32}, cost, 32 * tp);
      if (scheme.lane_max_len_tokens() < 2) continue;  // the model does not fit
      const cost::Exchanges exchanges(scheme.scheme(), cost);
      base::Rng rng(static_cast<uint64_t>(tp), 83);
      int charged = 0;
      for (int i = 0; i < 2000; ++i) {
        const Exposure of = exposure_of(scheme, exchanges, rng);
        ASSERT_LE(of.floor_ns, of.exposed_ns) << calibration << " tp " << tp << " instance " << i;
        charged += of.floor_ns > 0 ? 1 : 0;
      }
      EXPECT_GT(charged, 200) << calibration << " tp " << tp;
    }
  }
}

}  // namespace
}  // namespace sluice::plan
