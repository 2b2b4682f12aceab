#include "cost/cost_model.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/rng.h"
#include "cost/test_model.h"

namespace sluice::cost {
namespace {

using strategy::Scheme;

TEST(Quadratic, CountsTheConstantOnceAndRoundsToNearest) {
  const Quadratic times = Quadratic::from_ns(0.25, 3, 40);
  const std::vector<int64_t> lengths = {10, 20};
  EXPECT_EQ(times.of_sequences(lengths), 25 + 30 + 100 + 60 + 40);
  const std::vector<int64_t> one = {1};
  EXPECT_EQ(Quadratic::from_ns(0, 0.5, 0).of_sequences(one), 1);
  EXPECT_EQ(Quadratic::from_ns(0, 0.499, 0).of_sequences(one), 0);
  EXPECT_EQ(Quadratic::from_ns(1, 1, 5).of_sequences({}), 5);
}

TEST(Quadratic, EqualsExtendedPrecisionOnRandomLengths) {
  base::Rng rng(3);
  for (int round = 0; round < 2000; ++round) {
    const Quadratic times{rng.between(0, int64_t{1} << 34), rng.between(0, int64_t{1} << 44),
                          rng.between(0, 1000)};
    std::vector<int64_t> lengths;
    long double expected = static_cast<long double>(times.c_ns);
    for (int64_t i = rng.between(0, 5); i > 0; --i) {
      const int64_t length = rng.between(0, 1 << 20);
      lengths.push_back(length);
      const auto l = static_cast<long double>(length);
      expected +=
          (static_cast<long double>(times.a) * l * l + static_cast<long double>(times.b) * l) / 0x1p32L;
    }
    const auto result = static_cast<long double>(times.of_sequences(lengths));
    ASSERT_NEAR(static_cast<double>(result - expected), 0.0, 0.5001);
  }
}

TEST(Quadratic, HoldsTheLongestSequence) {
  const std::vector<int64_t> lengths = {(int64_t{1} << 31) - 1};
  const int64_t l = lengths[0];
  EXPECT_EQ(Quadratic::from_ns(0x1p-13, 1, 1).of_sequences(lengths), l * l / 8192 + l + 1);
}

TEST(Quadratic, TimesThatCouldNotBeAddedAreRefused) {
  const std::vector<int64_t> lengths = {(int64_t{1} << 31) - 1};
  EXPECT_THROW(Quadratic::from_ns(1, 1, 1).of_sequences(lengths), base::InputError);
}

TEST(CostModel, CellsAddLayersAndEnds) {
  const CostModel cost(tiny_options());
  const Scheme two{.pp = 2};
  const std::vector<int64_t> lengths = {4, 2};  // squares 20, tokens 6
  // Stage 0: three layers and the embedding.
  EXPECT_EQ(cost.cell_ns(two, CellKind::kForward, cost.stage_run(two, 0), lengths),
            3 * (10 + 60 + 100) + 6 + 7);
  EXPECT_EQ(cost.cell_ns(two, CellKind::kBackwardInput, cost.stage_run(two, 0), lengths),
            3 * (20 + 120 + 200) + 12 + 8);
  EXPECT_EQ(cost.cell_ns(two, CellKind::kBackwardWeight, cost.stage_run(two, 0), lengths), 3 * (72 + 50));
  // Stage 1: two layers; the head runs inside the forward.
  EXPECT_EQ(cost.cell_ns(two, CellKind::kForward, cost.stage_run(two, 1), lengths),
            2 * (10 + 60 + 100) + 180 + 9);
  EXPECT_EQ(cost.cell_ns(two, CellKind::kBackward, cost.stage_run(two, 1), lengths),
            2 * (20 + 120 + 200 + 72 + 50));
  // One stage has both ends.
  EXPECT_EQ(cost.cell_ns({}, CellKind::kForward, cost.stage_run({}, 0), lengths),
            5 * (10 + 60 + 100) + 6 + 7 + 180 + 9);
  EXPECT_EQ(cost.stage_times(two, 1).of_sequences(lengths), 2 * (30 + 252 + 350) + 189);
}

TEST(CostModel, UnknownTpDegreeIsTheUsersMistake) {
  const CostModel cost(tiny_options());
  try {
    cost.cell_ns({.tp = 2}, CellKind::kForward, {1, 2}, Work{});
    FAIL();
  } catch (const base::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("tp 2"), std::string::npos) << error.what();
  }
}

TEST(CostModel, TransfersAreCutOverTpSenders) {
  const CostModel cost(tiny_options());
  EXPECT_EQ(cost.transfer_bytes({.tp = 1}, 10), 10 * 64 * 4);
  EXPECT_EQ(cost.transfer_bytes({.tp = 4}, 10), 3 * 64 * 4);
  EXPECT_EQ(cost.transfer_ns({.tp = 1}, 10, true), 10 + 2560);
  EXPECT_EQ(cost.transfer_ns({.tp = 1}, 10, false), 100 + 5120);
  EXPECT_EQ(cost.exchange_ns(1000, true), 1010);
  EXPECT_EQ(cost.update_ns(1000), 1500);
}

TEST(CostModel, TpGroupSharesItsAdapterBetweenNodes) {
  CostModel::Options options = tiny_options();
  options.gpus_per_nic = 2;
  const CostModel cost(options);
  EXPECT_EQ(cost.transfer_ns({.tp = 1}, 10, false), 100 + 5120);
  EXPECT_EQ(cost.transfer_ns({.tp = 2}, 10, false), 100 + 5120) << "half the rows each, through one adapter";
  EXPECT_EQ(cost.transfer_ns({.tp = 2}, 10, true), 10 + 1280);
}

// Keys and values of 2 heads of 16 in 4 bytes: 256 bytes a token, 256 ns inside a node.
TEST(CostModel, RingsCostWhatAttentionDoesNotHide) {
  const CostModel cost(tiny_options());
  const Scheme scheme{.cp = 4};
  const base::Interval part{1, 4};
  EXPECT_EQ(cost.ring_bytes_per_token(scheme), 256);
  EXPECT_EQ(cost.ring_bytes_per_token({.tp = 4}), 128);  // fewer heads than ranks: a whole one each
  const RingTimes forward = cost.ring_times(scheme, CellKind::kForward, part, true);
  // A step moves 25 tokens in 10 + 6400 ns a layer beside attention of 0.5 · 2500 / 4.
  const Work lane = Work::of_lane(25, 100, 4);
  EXPECT_EQ(lane.squares, 2500);
  EXPECT_EQ(forward.exposed_ns(lane, 4), 3 * 3 * 6410 - 2812);
  // Attention grows with the square: 40,000 tokens hide all.
  EXPECT_EQ(forward.exposed_ns(Work::of_lane(10'000, 40'000, 4), 4), 0);
  const RingTimes backward = cost.ring_times(scheme, CellKind::kBackwardInput, part, false);
  EXPECT_EQ(backward.bytes_per_token, 512);
  EXPECT_EQ(backward.exposed_ns(lane, 4), 3 * 3 * (100 + 2 * 12'800) - 5625);
  EXPECT_EQ(cost.ring_times(scheme, CellKind::kBackwardWeight, part, true).exposed_ns(lane, 4), 0);
  EXPECT_EQ(forward.exposed_ns(lane, 1), 0);
}

TEST(Work, LanesShareAttentionAndKeepTheirTokens) {
  const Work lane = Work::of_lane(34, 101, 3);
  EXPECT_EQ(lane.tokens, 34);
  EXPECT_EQ(lane.squares, (101 * 101 + 2) / 3);
  EXPECT_EQ(Work::of_lane(7, 7, 1).squares, 49);
}

// Pairs of a token with those that it sees, twice, but for what l² leaves out of l·(l + 1) too.
TEST(Work, WindowsAreCountedByThePairsThatTheyLeave) {
  for (const int64_t window : {1, 3, 10}) {
    for (int64_t length = 0; length <= 20; ++length) {
      int64_t pairs = 0;
      for (int64_t token = 0; token < length; ++token) pairs += std::min(token + 1, window);
      EXPECT_EQ(windowed_square(length, window), 2 * pairs - std::min(length, window))
          << length << ", " << window;
    }
  }
  const std::vector<int64_t> lengths = {4, 20};
  EXPECT_EQ(Work::of(lengths, 10).windowed, 16 + 300);
  EXPECT_EQ(Work::of(lengths, 10).squares, 416);
  EXPECT_EQ(Work::of(lengths).windowed, 0);
  EXPECT_EQ(Work::of_lane(10, 20, 2, 10).windowed, 150);
}

// The tiny model, its layers 1 and 3 through a window of ten tokens.
CostModel windowed_model() {
  CostModel::Options options = tiny_options();
  options.shape.window = 10;
  options.shape.block_types.resize(static_cast<size_t>(options.shape.layers));
  for (const size_t layer : {1, 3}) options.shape.block_types[layer].windowed = true;
  for (auto& [tp, kinds] : options.kinds_by_tp) kinds.insert(kinds.begin() + 1, kinds[1]);
  return CostModel(options);
}

TEST(CostModel, LayersWithAWindowTakeTheirTokensAlone) {
  const CostModel whole(tiny_options()), windowed = windowed_model();
  const std::vector<int64_t> within = {10, 3}, beyond = {1000};
  for (const CellKind kind : {CellKind::kForward, CellKind::kBackwardInput, CellKind::kBackwardWeight}) {
    const auto of = [&](const CostModel& cost, base::Interval run, const std::vector<int64_t>& lengths) {
      return cost.cell_ns({}, kind, run, lengths);
    };
    EXPECT_EQ(of(windowed, {1, 5}, within), of(whole, {1, 5}, within));
    EXPECT_EQ(of(windowed, {1, 2}, beyond), of(whole, {1, 2}, beyond));
    const Quadratic layer = whole.cell_times({}, kind, {1, 2});
    const Quadratic seen{layer.a, layer.b, layer.c_ns};
    const Work work{.tokens = 1000, .squares = windowed_square(1000, 10)};
    EXPECT_EQ(of(windowed, {2, 3}, beyond), seen.of_work(work));
  }
}

TEST(CostModel, RingsOfLayersWithAWindowMoveWhatIsSeen) {
  const CostModel cost = windowed_model();
  const RingTimes ring = cost.ring_times({.cp = 4}, CellKind::kForward, {1, 5}, true);
  EXPECT_EQ(ring.layers, 2);
  EXPECT_EQ(ring.windowed_layers, 2);
  // 25 tokens a lane of one sequence of 100: both chunks see ten tokens of others, in two steps of 10 ns.
  const Work lane = Work::of_lane(25, 100, 4, 10);
  EXPECT_EQ(lane.windowed, 475);
  RingTimes windows = ring;
  windows.layers = 0;
  const int64_t hidden = 475 / 2 * 2 * 3 / 4;
  EXPECT_NEAR(windows.exposed_ns(lane, 4), 2 * (2 * 10 + 256 * 20) - hidden, 2);
  // Never more than without windows.
  windows.window = 1000;
  const Work wide = Work::of_lane(25, 100, 4, 1000);
  RingTimes all = ring;
  all.windowed_layers = 0;
  EXPECT_EQ(windows.exposed_ns(wide, 4), 2 * (3 * 10 + 256 * 75) - 2500 * 3 / 4);
  EXPECT_EQ(all.exposed_ns(wide, 4), windows.exposed_ns(wide, 4));
}

TEST(CostModel, FixedBytesAreThoseOfTheFullestStage) {
  const CostModel cost(tiny_options());
  const int64_t layer = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 96 + 2 * 64;
  const int64_t table = 100 * 64;
  const int64_t all = 5 * layer + 2 * table + 64;
  EXPECT_EQ(cost.fixed_bytes({}, 1), all * 8 + all * 16 + 4000);
  // Two stages of three and two layers: the first is fuller.
  EXPECT_EQ(cost.fixed_bytes({.pp = 2}, 4), (3 * layer + table) * 8 + (all + 3) / 4 * 16);
  // Tied, on five stages: the last holds embedding, final norm and a layer.
  const CostModel tied(tiny_options(true));
  const int64_t all_tied = 5 * layer + table + 64;
  EXPECT_EQ(tied.fixed_bytes({.pp = 5}, 5), (layer + table + 64) * 8 + (all_tied + 4) / 5 * 16 + 4000);
}

TEST(CostModel, CreditCountsDeferredWeightGradientsAndTransients) {
  const CostModel cost(tiny_options());
  const int64_t free_one = 10'000'000 - cost.fixed_bytes({}, 1);
  EXPECT_EQ(cost.max_len_tokens({}, 1), free_one / (5 * 1000 + 256 + 300));
  const int64_t free_two = 10'000'000 - cost.fixed_bytes({.pp = 2}, 2);
  const int64_t longest = free_two / (3 * 1500 + 256 + 300);
  EXPECT_EQ(cost.max_len_tokens({.pp = 2}, 2), longest);
  EXPECT_EQ(cost.credit_tokens({.pp = 2}, 2), (free_two - 300 * longest) / (3 * 1500 + 256));
  EXPECT_GE(cost.credit_tokens({.pp = 2}, 2), longest);
}

TEST(CostModel, ModelThatDoesNotFitHoldsNothing) {
  CostModel::Options options = tiny_options();
  options.memory.device_bytes = 1'000'000;
  const CostModel cost(options);
  EXPECT_EQ(cost.max_len_tokens({}, 1), 0);
  EXPECT_EQ(cost.credit_tokens({}, 1), 0);
}

// Six layers on <1,1>, <1,2> and <1,3>, with parameters counted as 1000 a layer and 500 an end.
CostModel::Options table_options() {
  CostModel::Options options = tiny_options();
  options.shape.layers = 6;
  options.kinds_by_tp.clear();
  for (const int pp : {1, 2, 3}) {
    options.scheme_times[{1, pp}] = {.stage = Quadratic::from_ns(12.0 / pp, 100.0 / pp, 50),
                                     .saved_bytes_per_token = 6000 / pp,
                                     .util_len_tokens = 32};
  }
  options.memory = {.device_bytes = 1'000'000,
                    .element_bytes = 2,
                    .accumulator_bytes = 2,
                    .owner_bytes_per_parameter = 12,
                    .layer_parameters = 1000,
                    .end_parameters = 500};
  return options;
}

TEST(SchemeTable, WholeStagesTakeWhatTheTableSays) {
  const CostModel cost(table_options());
  const std::vector<int64_t> lengths = {10, 7};
  for (const int pp : {1, 2, 3}) {
    const Scheme scheme{.pp = pp};
    for (int stage = 0; stage < pp; ++stage) {
      const auto part = cost.stage_run(scheme, stage);
      Quadratic sum = cost.cell_times(scheme, CellKind::kForward, part);
      sum += cost.cell_times(scheme, CellKind::kBackward, part);
      EXPECT_EQ(sum, table_options().scheme_times.at({1, pp}).stage);
      EXPECT_EQ(cost.stage_times(scheme, stage), sum);
      const auto third = static_cast<double>(sum.of_sequences(lengths)) / 3;
      for (const CellKind kind : {CellKind::kForward, CellKind::kBackwardInput, CellKind::kBackwardWeight}) {
        EXPECT_NEAR(static_cast<double>(cost.cell_ns(scheme, kind, part, lengths)), third, 2);
      }
    }
  }
}

TEST(SchemeTable, PartsTakeTheirLayersShare) {
  const CostModel cost(table_options());
  const std::vector<int64_t> lengths = {100};
  // <1,2>: 6·100² + 50·100 + 50 forward and backward on three layers; a ninth is one layer's forward.
  EXPECT_EQ(cost.cell_ns({.pp = 2}, CellKind::kForward, {1, 2}, lengths), (60'000 + 5'000) / 9 + 6);
  EXPECT_EQ(cost.cell_ns({.pp = 2}, CellKind::kForward, {6, 8}, lengths), (60'000 + 5'000) / 9 + 6);
  EXPECT_EQ(cost.cell_ns({.pp = 2}, CellKind::kForward, {7, 8}, lengths), 0);
}

TEST(SchemeTable, MemoryHoldsPpOfTheLongestMicroBatches) {
  const CostModel cost(table_options());
  // 3 layers and an end of compute and gradients, a quarter of everything at 12 bytes.
  EXPECT_EQ(cost.fixed_bytes({.pp = 2}, 4), 3500 * 4 + 7000 / 4 * 12);
  const int64_t free_bytes = 1'000'000 - cost.fixed_bytes({.pp = 2}, 4);
  EXPECT_EQ(cost.credit_tokens({.pp = 2}, 4), free_bytes / 3000);
  EXPECT_EQ(cost.max_len_tokens({.pp = 2}, 4), free_bytes / 6000);
  EXPECT_EQ(cost.saved_bytes_per_token({.pp = 2}, 1), 1000);
  EXPECT_EQ(cost.deferred_bytes_per_token({.pp = 2}, 1), 0);
  EXPECT_EQ(cost.util_len_tokens({.pp = 2}), 32);
}

TEST(SchemeTable, SchemesWithoutARowAreNamed) {
  const CostModel cost(table_options());
  EXPECT_TRUE(cost.has_scheme({.pp = 3}));
  EXPECT_TRUE(cost.has_scheme({.pp = 3, .cp = 2}));
  EXPECT_FALSE(cost.has_scheme({.pp = 6}));
  EXPECT_FALSE(cost.has_scheme({.tp = 2}));
  EXPECT_EQ(cost.schemes(2), (std::vector<Scheme>{{}, {.pp = 2}}));
  const Scheme six{.pp = 6};
  const std::vector<std::function<void()>> queries = {
      [&] {
        cost.cell_ns(six, CellKind::kForward, {1, 2}, Work{});
      },
      [&] { cost.stage_times(six, 0); },
      [&] { cost.max_len_tokens(six, 8); },
      [&] { cost.credit_tokens(six, 8); },
      [&] { cost.util_len_tokens(six); },
  };
  for (const auto& query : queries) {
    try {
      query();
      ADD_FAILURE();
    } catch (const base::InputError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("no row for scheme <1,6,1> (it has <1,1,1>, <1,2,1>"), std::string::npos)
          << message;
    }
  }
}

TEST(CostModel, KnowsWhichSchemesItCanPlan) {
  const CostModel cost(tiny_options());
  EXPECT_TRUE(cost.has_scheme({.pp = 5}));
  EXPECT_FALSE(cost.has_scheme({.pp = 6}));  // five layers
  EXPECT_EQ(cost.schemes(8), (std::vector<Scheme>{{}, {.pp = 2}, {.pp = 4}}));
  EXPECT_FALSE(cost.has_scheme({.tp = 2}));
}

TEST(CostModel, UtilLengthIsWhereTokensTakeMostOfTheTime) {
  const CostModel cost(tiny_options());
  // One stage: 5·(10 + 20 + 12) + 1 + 2 + 30 ns a token, 5·350 + 7 + 8 + 9 once.
  EXPECT_EQ(cost.util_len_tokens({}), (1774 * 85 + 243 * 15 / 2) / (243 * 15));
}

TEST(CostModel, OneBackwardCellTakesWhatTheTwoTakeAndDefersNothing) {
  CostModel::Options options = tiny_options();
  const CostModel split(options);
  options.backward_cells = BackwardCells::kOne;
  const CostModel one(options);
  const Scheme scheme{.pp = 2};
  const std::vector<int64_t> lengths = {70, 5};
  for (int stage = 0; stage < 2; ++stage) {
    const base::Interval part = split.stage_run(scheme, stage);
    EXPECT_EQ(one.cell_ns(scheme, CellKind::kBackwardWeight, part, lengths), 0);
    EXPECT_NEAR(one.cell_ns(scheme, CellKind::kBackwardInput, part, lengths),
                split.cell_ns(scheme, CellKind::kBackward, part, lengths), 1);
    EXPECT_EQ(one.stage_times(scheme, stage), split.stage_times(scheme, stage));
  }
  EXPECT_GT(one.credit_tokens(scheme, 2), split.credit_tokens(scheme, 2));
}

TEST(CostModel, RepeatingTheForwardRunsItsLayersOnceMore) {
  CostModel::Options options = tiny_options();
  const CostModel kept(options);
  options.repeat_forward = true;
  const CostModel again(options);
  const Scheme scheme{.pp = 2};
  const base::Interval part = kept.stage_run(scheme, 1);  // with the head, which is not run again
  Quadratic expected = kept.cell_times(scheme, CellKind::kBackward, part);
  expected += kept.cell_times(scheme, CellKind::kForward, kept.program().blocks_in(part));
  EXPECT_EQ(again.cell_times(scheme, CellKind::kBackward, part), expected);
}

TEST(CostModel, RecomputingKeepsBordersAndRepeatsTheForwardWithoutAttention) {
  const CostModel keep(tiny_options());
  const CostModel recompute = keep.under({.recompute = true});
  const model::TokenBytes bytes = keep.program().kind_at(1).bytes(1, 4);
  const Scheme one;
  EXPECT_EQ(recompute.kept_bytes_per_token(one, 1), (1000 * bytes.border + bytes.saved - 1) / bytes.saved);
  EXPECT_GT(recompute.max_len_tokens(one, 1), keep.max_len_tokens(one, 1));
  // Of the 30,720 matrix elements the MLP's second, 6,144, does nothing again.
  const Quadratic again = recompute.recompute_times(one, {1, 6});
  EXPECT_EQ(again.a, 0);
  EXPECT_EQ(again.c_ns, 500);
  EXPECT_EQ(again.b, Quadratic::from_ns(0, 50, 0).share(30'720 - 6'144, 30'720).b);
  const base::Interval part = keep.stage_run(one, 0);
  Quadratic expected = keep.cell_times(one, CellKind::kBackwardInput, part);
  EXPECT_EQ(recompute.cell_times(one, CellKind::kBackwardInput, part), expected += again);
  EXPECT_EQ(recompute.cell_times(one, CellKind::kForward, part),
            keep.cell_times(one, CellKind::kForward, part));
}

TEST(CostModel, OffloadingLeavesTwoLayersAndFillsTheHost) {
  CostModel::Options options = tiny_options();
  const Scheme one;
  const CostModel keep(options);
  const CostModel half = keep.under({.offload_permille = 500});
  // Five layers of 1000 bytes: three of them half away; a row of 256 bytes at the boundary.
  EXPECT_EQ(keep.held_bytes_per_token(one), 5 * 1000 + 256);
  EXPECT_EQ(half.held_bytes_per_token(one), 2 * 1000 + 3 * 500 + 256);
  EXPECT_EQ(half.offloaded_bytes(one, 1, 7), 3500);
  EXPECT_FALSE(half.splits_backward({.pp = 2}));
  options.memory.host_bytes = 3 * 500 * 100;
  EXPECT_EQ(CostModel(options).under({.offload_permille = 500}).max_len_tokens(one, 1), 100);
  EXPECT_EQ(CostModel(options).max_len_tokens(one, 1), keep.max_len_tokens(one, 1));
}

TEST(CostModel, CreditOfAnotherPolicyIsItsShareOfTheMemory) {
  for (const strategy::MemoryPolicy& policy :
       {strategy::MemoryPolicy{.recompute = true}, {.offload_permille = 700}}) {
    const CostModel keep(tiny_options());
    const CostModel saving = keep.under(policy);
    for (const Scheme& scheme : {Scheme{}, Scheme{.pp = 2}}) {
      const int64_t longest = saving.max_len_tokens(scheme, 2);
      const int64_t credit = keep.credit_tokens(scheme, 2);
      EXPECT_EQ(saving.credit_of(scheme, 2, policy, 17), 17);
      EXPECT_LT(keep.credit_of(scheme, 2, policy, 100), 100);
      EXPECT_EQ(keep.credit_of(scheme, 2, policy, longest), credit);
    }
  }
}

}  // namespace
}  // namespace sluice::cost
