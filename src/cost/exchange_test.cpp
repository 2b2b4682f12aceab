#include "cost/exchange.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "model/test_outline.h"
#include "strategy/row_schedule.h"

namespace sluice::cost {
namespace {

using strategy::Exchange;
using strategy::Scheme;

constexpr int64_t kAmpleTokens = int64_t{1} << 40;

// Attention takes squares ÷ 8 ns forward and twice that backward; 4 query and 2 key heads of 16 dimensions,
// in one layer.
CostModel::Options options_of(int layers = 1) {
  CostModel::Options options;
  options.model = model::Outline{.layers = layers,
                                 .hidden = 64,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 16,
                                 .ffn_hidden = 96,
                                 .vocab = 100};
  const KindCost block{
      {Quadratic::from_ns(0.125, 10, 100), Quadratic::from_ns(0.25, 20, 200), Quadratic::from_ns(0, 12, 50)},
      1000,
      500};
  options.kinds_by_tp[1] = {{}, block, {}};
  options.intra = {.latency_ns = 10, .bytes_per_s = 1'000'000'000};
  options.inter = {.latency_ns = 100, .bytes_per_s = 500'000'000};
  options.memory = {.device_bytes = 10'000'000, .element_bytes = 4, .transient_bytes_per_token = 300};
  return options;
}

Exchanges exchanges_of(const CostModel::Options& options, int lanes = 8) {
  return {Scheme{.tp = 1, .pp = 1, .cp = lanes}, CostModel(options)};
}

// 100 tokens on each of k lanes.
Work shared_on(int lanes) { return Work::of_lane(100, int64_t{100} * lanes, lanes); }

// One recurrent layer, whose state takes 4,096 bytes and travels in four blocks: 1,034 ns each inside a node,
// 2,148 ns between nodes. The time that lanes wait does not depend on how much each has.
TEST(Exchanges, StatesPassBothChunksOfEveryLane) {
  CostModel::Options options = options_of();
  options.model = model::changed(options.model, [](model::Outline& outline) {
    outline.recurrent = {
        .key_heads = 2, .value_heads = 4, .key_width = 16, .value_width = 16, .convolution = 4};
    outline.block_types = {{.recurrent = true}};
  });
  const Exchanges exchanges = exchanges_of(options);
  const auto forward_ns = [&](const Work& work, const LanePlace& place, int head_lanes) {
    return exchanges.exposed(0, work, place, head_lanes).forward_ns;
  };
  EXPECT_EQ(forward_ns(shared_on(4), LanePlace::aligned(4, 8), 1), (2 * 3 + 3) * 1034);
  EXPECT_EQ(forward_ns(Work::of_lane(1000, 4000, 4), LanePlace::aligned(4, 8), 1), (2 * 3 + 3) * 1034);
  EXPECT_EQ(forward_ns(shared_on(8), LanePlace::aligned(8, 4), 1), 2 * 6 * 1034 + (2 + 3) * 2148);
  // Runs of two pass half of it; a token's row of two key and value heads, there and back, goes to one lane.
  const int64_t heads_ns = 10 + (10 + 100 * (2 * 1 * 16 + 2 * (2 * 16 + 2)) * 4);
  EXPECT_EQ(forward_ns(shared_on(4), LanePlace::aligned(4, 8), 2), heads_ns + (2 * 1 + 3) * (10 + 512));
  EXPECT_EQ(exchanges.exposed(0, {}, LanePlace::aligned(4, 8), 1).forward_ns, 0);
  // No placement takes less than what proofs count on.
  for (const int lanes : {2, 4, 8}) {
    const int64_t floor_ns = exchanges.floor_ns(0, shared_on(lanes), lanes, 4);
    for (const int on_node : {1, 2, 4}) {
      for (const int run : {1, 2, 4}) {
        const LanePlace place = LanePlace::aligned(lanes, on_node);
        if (lanes % run != 0 || run > lanes) continue;
        EXPECT_LE(floor_ns, exchanges.exposed(0, shared_on(lanes), place, run).both_ns());
      }
    }
  }
}

TEST(LanePlace, KnowsTheNodeWithTheFewestLanesAndTheRunsThatFillNodes) {
  const std::vector<int> nodes = {0, 0, 1, 1, 1, 1, 2, 2};
  const LanePlace place = LanePlace::of(nodes);
  EXPECT_EQ(place, (LanePlace{.lanes = 8, .fewest = 2, .run = 2, .nodes = 3}));
  EXPECT_FALSE(place.in_node());
  EXPECT_TRUE(LanePlace::of(std::span(nodes).subspan(2, 4)).in_node());
  // A node that stands twice in the order keeps all its lanes, but no pair of them is inside it.
  const int split[] = {0, 1, 1, 0};
  EXPECT_EQ(LanePlace::of(split), (LanePlace{.lanes = 4, .fewest = 2, .run = 1, .nodes = 2}));
  EXPECT_EQ(LanePlace::aligned(12, 8), (LanePlace{.lanes = 12, .fewest = 4, .run = 4, .nodes = 2}));
  EXPECT_EQ(LanePlace::aligned(16, 8), (LanePlace{.lanes = 16, .fewest = 8, .run = 8, .nodes = 2}));
  EXPECT_EQ(LanePlace::aligned(5, 8), (LanePlace{.lanes = 5, .fewest = 5, .run = 5, .nodes = 1}));
}

TEST(Exchanges, ARingExposesWhatRingTimesSay) {
  const CostModel cost(options_of());
  const Exchanges exchanges = exchanges_of(options_of());
  const base::Interval run = cost.stage_run({1, 1, 8}, 0);
  for (const bool in_node : {false, true}) {
    const LanePlace place{.lanes = 4, .fewest = in_node ? 4 : 1, .run = 1};
    const Exchanges::Exposed exposed = exchanges.exposed(0, shared_on(4), place, 1);
    const auto ring = [&](CellKind kind) {
      return cost.ring_times({1, 1, 8}, kind, run, in_node ? 0 : 1).exposed_ns(shared_on(4), 4);
    };
    EXPECT_EQ(exposed.forward_ns, ring(CellKind::kForward));
    EXPECT_EQ(exposed.backward_ns, ring(CellKind::kBackwardInput));
  }
}

// Walks a schedule step by step: in each step a lane attends for so long, while rows for the next step arrive
// and results of the step before leave.
TEST(Exchanges, ARingOnTwoLevelsTakesWhatItsScheduleTakes) {
  const CostModel cost(options_of());
  const Exchanges exchanges = exchanges_of(options_of());
  const base::Interval run = cost.stage_run({1, 1, 8}, 0);
  for (const int in_node : {2, 4}) {
    const LanePlace place{.lanes = 8, .fewest = in_node, .run = in_node, .nodes = 8 / in_node};
    for (const int64_t length : {800, 8'000, 80'000, 800'000}) {
      const Work work = Work::of_lane(length / 8, length, 8);
      const auto ring = [&](bool inside) {
        return cost.ring_times({1, 1, 8}, CellKind::kForward, run, inside ? 0 : 1);
      };
      const auto attention_ns =
          static_cast<double>(Wide{ring(true).a} * work.squares >> Quadratic::kFractionBits);
      const auto step_ns = [&](bool inside) {
        const RingTimes times = ring(inside);
        return static_cast<double>(times.layers * times.link.of_bytes(times.bytes_per_token * work.tokens));
      };
      // All lanes alike: when each step begins, and when what set out in it is there.
      const strategy::RowSchedule schedule = strategy::ring_schedule(8, in_node);
      std::vector<double> begin(10, 0), there(10, 0);
      for (int step = 0; step < 8; ++step) {
        const auto at = static_cast<size_t>(step);
        begin[at + 1] = std::max(begin[at] + attention_ns / 8, there[at + 1]);
        for (const strategy::RowSchedule::Hop& hop : schedule.hops) {
          if (hop.issued != step || hop.from != 0) continue;
          const auto due = static_cast<size_t>(hop.due);
          there[due] = std::max(there[due], begin[at] + step_ns(hop.due - hop.issued == 1));
        }
        begin[at + 1] = std::max(begin[at + 1], there[at + 1]);
      }
      const double expected_ns = begin[8] - attention_ns;
      EXPECT_NEAR(static_cast<double>(exchanges.exposed(0, work, place, 1).forward_ns), expected_ns,
                  2 + expected_ns * 1e-6)
          << base::text(in_node, " of a node, ", length, " tokens");
    }
  }
}

// A byte a nanosecond, 64 bytes a row of a head, of which there are four of queries and two of keys.
TEST(Exchanges, WhereQueriesTravelTheBusiestLaneCounts) {
  const Exchanges exchanges = exchanges_of(options_of());
  const LanePlace place{.lanes = 4, .fewest = 4, .run = 4};
  const Work work{.tokens = 100};  // no attention hides anything
  const auto& intra = options_of().intra;
  const int64_t layers = 1, q = 4 * 64, kv = 2 * 2 * 64, lse = 4 * 4;
  const auto step_ns = [&](int64_t bytes) { return layers * intra.of_bytes(100 * bytes); };
  const auto balanced = exchanges.exposed(0, work, place, {strategy::Exchange::kBalanced});
  EXPECT_EQ(balanced.forward_ns, 2 * step_ns(std::max(kv + q + lse, q)));
  EXPECT_EQ(balanced.backward_ns, 2 * step_ns(3 * q + lse + kv));
  const auto queries = exchanges.exposed(0, work, place, {strategy::Exchange::kQueries});
  EXPECT_EQ(queries.forward_ns, 3 * step_ns(2 * q + lse));
  EXPECT_EQ(queries.backward_ns, 3 * step_ns(4 * q + lse));
}

// Four lanes in a node: one query head and one key head each. Three peers, to each 2·1 + 2·1 heads of 16·4
// bytes of 100 tokens, at a byte a nanosecond, in two transfers; nothing waits, because heads are even.
TEST(Exchanges, HeadsExposeAllThatTheyMove) {
  const LanePlace place{.lanes = 4, .fewest = 4, .run = 4};
  const Exchanges::Exposed exposed = exchanges_of(options_of()).exposed(0, shared_on(4), place, 4);
  EXPECT_EQ(exposed.forward_ns, 3 * 4 * 64 * 100 + 2 * 10);
  EXPECT_EQ(exposed.backward_ns, exposed.forward_ns);
}

// Two of the three peers are elsewhere, at half the rate: the third one's transfer is hidden behind theirs.
TEST(Exchanges, LinksInsideNodesAndBetweenThemWorkSideBySide) {
  const LanePlace place{.lanes = 4, .fewest = 2, .run = 1, .nodes = 2};
  const Exchanges::Exposed exposed = exchanges_of(options_of()).exposed(0, shared_on(4), place, 4);
  EXPECT_EQ(exposed.forward_ns, 2 * (2 * 4 * 64 * 100) + 2 * 100);
}

TEST(Exchanges, ThoseOnOneAdapterShareIt) {
  CostModel::Options options = options_of();
  const LanePlace place{.lanes = 4, .fewest = 2, .run = 1, .nodes = 2};
  const int64_t alone_ns = exchanges_of(options).exposed(0, shared_on(4), place, 4).forward_ns;
  options.topology = {8, 2};
  EXPECT_EQ(exchanges_of(options).exposed(0, shared_on(4), place, 4).forward_ns, 2 * alone_ns - 2 * 100);
}

// Four heads on three lanes: one has two of them, and both of their key heads or not: attention takes 6/4 of
// its even share. Squares are 100²·3 a lane.
TEST(Exchanges, AttentionWaitsForTheLaneWithMostHeads) {
  const LanePlace place{.lanes = 3, .fewest = 3, .run = 3};
  const Exchanges::Exposed exposed = exchanges_of(options_of()).exposed(0, shared_on(3), place, 3);
  const int64_t most_keys = model::most_heads({4, 2}, 3).keys;
  const int64_t moved_ns = 2 * (2 * (2 + most_keys)) * 64 * 100 + 2 * 10;
  EXPECT_EQ(exposed.forward_ns, moved_ns + 30'000 / 8 / 2);
  EXPECT_EQ(exposed.backward_ns, moved_ns + 30'000 / 4 / 2);
}

TEST(Exchanges, RecomputingExchangesHeadsOnceMore) {
  const LanePlace place{.lanes = 4, .fewest = 4, .run = 4};
  const Exchanges exchanges({.cp = 8}, CostModel(options_of()).under({.recompute_permille = 1000}));
  const Exchanges::Exposed exposed = exchanges.exposed(0, shared_on(4), place, 4);
  EXPECT_EQ(exposed.backward_ns, 2 * exposed.forward_ns);
}

// Runs of two lanes inside nodes exchange heads: one peer, two query heads and one key head. Between them is
// a ring of two. Its blocks are a key head's of 200 tokens; attention's half hides what it can.
TEST(Exchanges, NestedAddsARingBetweenRuns) {
  const LanePlace place{.lanes = 4, .fewest = 2, .run = 2};
  const Exchanges::Exposed exposed = exchanges_of(options_of()).exposed(0, shared_on(4), place, 2);
  const int64_t heads_ns = 1 * (2 * 2 + 2 * 1) * 64 * 100 + 2 * 10;
  const int64_t block_ns = 2 * (2 * 64 * 200) + 100;
  EXPECT_EQ(exposed.forward_ns, heads_ns + block_ns - 40'000 / 8 / 2);
  EXPECT_EQ(exposed.backward_ns, heads_ns + 2 * block_ns - 100 - 40'000 / 4 / 2);
}

TEST(Exchanges, TheCheapestIsTheLeastOfThoseAllowed) {
  base::Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    CostModel::Options options = options_of();
    options.model = model::changed(options.model, [](model::Outline& outline) {
      outline.heads = 16;
      outline.kv_heads = 4;
    });
    options.exchanges = {.ring = rng.below(2) == 0, .heads = rng.below(2) == 0, .nested = rng.below(2) == 0};
    const Exchanges exchanges = exchanges_of(options, 32);
    const int lanes = static_cast<int>(rng.between(2, 32));
    const LanePlace place = LanePlace::aligned(lanes, 8);
    const Work work = Work::of_lane(rng.between(1, 5000), rng.between(2, 200'000), lanes);
    int64_t least_ns = -1;
    const auto consider = [&](bool allowed, int head_lanes) {
      if (!allowed || head_lanes > 16 || lanes % head_lanes != 0) return;
      const int64_t ns = exchanges.exposed(0, work, place, head_lanes).both_ns();
      least_ns = least_ns < 0 ? ns : std::min(least_ns, ns);
    };
    consider(options.exchanges.ring, 1);
    consider(options.exchanges.heads, lanes);
    for (int run = 2; run < lanes; ++run) {
      if (place.run % run == 0) consider(options.exchanges.nested, run);
    }
    if (least_ns < 0) least_ns = exchanges.exposed(0, work, place, 1).both_ns();
    EXPECT_EQ(Exchanges::Placed(exchanges, 0, place, kAmpleTokens).least(work).both_ns(), least_ns)
        << base::text(lanes, " lanes, round ", round);
    EXPECT_LE(exchanges.floor_ns(0, work, lanes, 8), least_ns);
  }
}

TEST(Exchanges, HeadsNeedRoomForWhatTheySave) {
  const Exchanges exchanges = exchanges_of(options_of());
  const LanePlace place{.lanes = 4, .fewest = 4, .run = 4};
  const Exchanges::StagePlace stage{0, place};
  const int64_t taken = exchanges.credit_tokens({Exchange::kHeads}, 4, 100);
  EXPECT_GT(taken, 100);
  const auto chosen = [&](int64_t max_tokens) {
    return exchanges.cheapest(Work::of_lane(100, 40, 4), 100, std::span(&stage, 1), max_tokens);
  };
  EXPECT_NE(chosen(kAmpleTokens).exchange, Exchange::kRing);
  EXPECT_EQ(chosen(100).exchange, Exchange::kRing);
  // Whole sequences beside the shared ones take room too.
  const Work shared = Work::of_lane(50, 40, 4);
  EXPECT_NE(exchanges.cheapest(shared, 50, std::span(&stage, 1), 100).exchange, Exchange::kRing);
  EXPECT_EQ(exchanges.cheapest(shared, 100, std::span(&stage, 1), 100).exchange, Exchange::kRing);
}

TEST(Exchanges, AreTakenInTurnByTokens) {
  const CostModel cost = choosing_from(CostModel(options_of()), exchange_set(strategy::ExchangeRule::kCycle));
  const Exchanges exchanges({.cp = 4}, cost);
  const Exchanges::StagePlace stage{0, LanePlace::aligned(4, 2)};
  std::vector<Exchange> taken;
  for (int64_t tokens = 300; tokens < 306; ++tokens)
    taken.push_back(
        exchanges.cheapest({.tokens = tokens}, tokens, std::span(&stage, 1), kAmpleTokens).exchange);
  EXPECT_EQ(taken, (std::vector{Exchange::kRing, Exchange::kHeads, Exchange::kNested, Exchange::kBalanced,
                                Exchange::kQueries, Exchange::kRing}));
}

// Long sequences hide a ring, short ones don't; between many nodes heads move less than keys and values do,
// until there is as much attention as hides them.
TEST(Exchanges, OnNodesOfEightShortSequencesExchangeHeadsAndLongOnesKeys) {
  const strategy::Cluster cluster = strategy::cluster_preset("a800x8", 8);
  const std::vector<int> degrees = {1};
  const AnalyticMemory memory{.device_bytes = int64_t{1} << 40, .element_bytes = 2};
  const CostModel cost(analytic_options(model::named_outline("llama-32b"), rates_of(cluster), memory, degrees,
                                        cluster.gpus_per_node));
  const Exchanges exchanges({.tp = 1, .pp = 1, .cp = 64}, cost);
  const auto choice = [&](int64_t length, int lanes) {
    const Exchanges::StagePlace stage{0, LanePlace::aligned(lanes, 8)};
    const Work work = Work::of_lane((length + lanes - 1) / lanes, length, lanes);
    return exchanges.cheapest(work, work.tokens, std::span(&stage, 1), kAmpleTokens).exchange;
  };
  EXPECT_NE(choice(8'192, 16), Exchange::kRing);
  EXPECT_NE(choice(16'384, 64), Exchange::kRing);
  EXPECT_EQ(choice(1'048'576, 64), Exchange::kRing);
}

}  // namespace
}  // namespace sluice::cost
