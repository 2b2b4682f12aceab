#include "plan/offload.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "cost/memory_cost.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

// 32 layers, a lane of 8K, a sequence of 1M: the published example.
OffloadProblem example() {
  return {.layers = 32,
          .sequence_bytes = 1 << 20,
          .lane_bytes = 8 << 10,
          .layer_ns = 1'000'000'000,
          .host_bytes_per_s = 1 << 20};
}

TEST(Offload, LanesOfThePublishedExample) {
  EXPECT_EQ(lanes_of_offload(example(), 0), 128);
  EXPECT_EQ(lanes_of_offload(example(), 500), 68);
  EXPECT_EQ(lanes_of_offload(example(), 800), 32);
  EXPECT_EQ(lanes_of_offload(example(), 1000), 8);
}

TEST(Offload, TakesTheLeastThatSavesAsManyLanes) {
  EXPECT_EQ(choose_offload(example()), (OffloadChoice{1000, 8}));
  OffloadProblem slow = example();
  slow.host_bytes_per_s /= 2;
  EXPECT_EQ(choose_offload(slow), (OffloadChoice{500, 68}));
  slow.host_bytes_per_s = 100;  // less than a lane is saved
  EXPECT_EQ(choose_offload(slow), (OffloadChoice{0, 128}));
  OffloadProblem short_one = example();
  short_one.sequence_bytes = 5 << 10;
  EXPECT_EQ(choose_offload(short_one), (OffloadChoice{0, 1}));
}

// The formula as printed, tried for every thousandth.
OffloadChoice literal(const OffloadProblem& p) {
  const auto lanes = [&](int permille) {
    const long double act = static_cast<long double>(p.sequence_bytes);
    const long double held = 2 * act * 1000 + static_cast<long double>(1000 - permille) *
                                                  static_cast<long double>(p.layers - 2) * act;
    const long double lane =
        static_cast<long double>(p.layers) * static_cast<long double>(p.lane_bytes) * 1000;
    return static_cast<int64_t>(std::ceil(held / lane));
  };
  OffloadChoice best{0, lanes(0)};
  for (int permille = 1; permille <= 1000; ++permille) {
    const __int128 copy = static_cast<__int128>(permille) * p.sequence_bytes * 1'000'000'000;
    if (static_cast<__int128>(p.layer_ns) * p.host_bytes_per_s * 1000 < copy) break;
    if (lanes(permille) < best.lanes) best = {permille, lanes(permille)};
  }
  return best;
}

TEST(Offload, EqualsTheLiteralFormula) {
  base::Rng rng(5);
  for (int i = 0; i < 2000; ++i) {
    // Bandwidths that make whole bytes of a nanosecond: the bound on r is then exact.
    const OffloadProblem problem{.layers = rng.between(2, 80),
                                 .sequence_bytes = rng.between(1, 1 << 30),
                                 .lane_bytes = rng.between(1 << 10, 1 << 24),
                                 .layer_ns = rng.between(0, 1 << 24),
                                 .host_bytes_per_s = rng.between(1, 60) * 1'000'000'000};
    ASSERT_EQ(choose_offload(problem), literal(problem)) << i;
  }
}

TEST(Offload, ShareThatIsAlwaysHiddenGrowsWithTheHostsLink) {
  cost::CostModel::Options options = test_cost().options();
  const std::vector<strategy::Strategy> strategies{strategy::parse_strategy("<1,2,1> + 2x<1,1,1>", 4)};
  int before = 0;
  for (const int shift : {20, 24, 26, 28, 30, 40}) {
    options.host = {0, int64_t{1} << shift};
    const int hidden = hidden_permille(cost::CostModel(options), strategies, 4);
    EXPECT_GE(hidden, before) << shift;
    EXPECT_EQ(hidden % 50, 0);
    before = hidden;
  }
  EXPECT_EQ(before, 1000);
  options.host = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_EQ(hidden_permille(cost::CostModel(options), strategies, 4), 0)
      << "a latency above any layer's time";
}

}  // namespace
}  // namespace sluice::plan
