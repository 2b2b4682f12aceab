#include "cost/cost_model.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/error.h"
#include "cost/memory_cost.h"
#include "cost/test_model.h"
#include "model/test_outline.h"
#include "model/test_tuning.h"
#include "strategy/step_plan.h"

namespace sluice::cost {
namespace {

using strategy::Scheme;

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

TEST(CostModel, SlowRanksTakeAsManyTimesAsLongForWhatTheyCompute) {
  const CostModel priced(tiny_options());
  const std::vector<int64_t> lengths = {4, 2};
  const auto all = priced.stage_run({}, 0);
  const auto slowed = [](const CostModel& cost, int percent) {
    Conditions conditions = cost.conditions();
    conditions.slowed_percent = percent;
    return cost.under(conditions);
  };
  const CostModel slow = slowed(priced, 250);
  EXPECT_EQ(2 * slow.cell_ns({}, CellKind::kForward, all, lengths),
            5 * priced.cell_ns({}, CellKind::kForward, all, lengths));
  EXPECT_EQ(slowed(slow, 250).stage_times({}, 0), slow.stage_times({}, 0)) << "a pace, not a factor on one";
  EXPECT_EQ(slowed(slow, 100).stage_times({}, 0), priced.stage_times({}, 0));
  EXPECT_EQ(slowed(slow.under({.recompute_permille = 1000}), 100).stage_times({}, 0),
            priced.under({.recompute_permille = 1000}).stage_times({}, 0));
  EXPECT_GT(slow.under({.recompute_permille = 1000}).stage_times({}, 0).b, slow.stage_times({}, 0).b);
  EXPECT_EQ(slow.update_ns(1000), priced.update_ns(1000));
  EXPECT_EQ(slow.transfer_ns({.pp = 2}, 100, 0), priced.transfer_ns({.pp = 2}, 100, 0));
}

TEST(CostModel, BackwardsEndAtTheFirstTrainedLayer) {
  CostModel::Options options = tiny_options_with_frozen_start();
  const CostModel cost(options);
  const std::vector<int64_t> lengths = {4, 2};
  EXPECT_EQ(cost.cell_ns({}, CellKind::kBackwardInput, {0, 3}, lengths), 0);
  EXPECT_EQ(cost.cell_ns({}, CellKind::kBackwardInput, {0, 4}, lengths), 20 + 120 + 200);
  EXPECT_EQ(cost.first_backward_stage({.pp = 5}), 2);
  EXPECT_EQ(cost.first_backward_stage({.pp = 2}), 0);
  model::freeze(options.model, {"model.layers.*"});
  std::vector<KindCost>& kinds = options.kinds_by_tp[1];
  kinds.erase(kinds.begin() + 1);
  EXPECT_EQ(CostModel(options).first_backward_stage({.pp = 2}), 2);
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
  EXPECT_EQ(cost.transfer_ns({.tp = 1}, 10, 0), 10 + 2560);
  EXPECT_EQ(cost.transfer_ns({.tp = 1}, 10, 1), 100 + 5120);
  EXPECT_EQ(cost.exchange_ns(1000, 0), 1010);
  EXPECT_EQ(cost.update_ns(1000), 1500);
}

TEST(CostModel, TpGroupSharesItsAdapterBetweenNodes) {
  CostModel::Options options = tiny_options();
  options.topology = {8, 2};
  const CostModel cost(options);
  EXPECT_EQ(cost.transfer_ns({.tp = 1}, 10, 1), 100 + 5120);
  EXPECT_EQ(cost.transfer_ns({.tp = 2}, 10, 1), 100 + 5120) << "half the rows each, through one adapter";
  EXPECT_EQ(cost.transfer_ns({.tp = 2}, 10, 0), 10 + 1280);
}

// Keys and values of 2 heads of 16 in 4 bytes: 256 bytes a token, 256 ns inside a node.
TEST(CostModel, RingsCostWhatAttentionDoesNotHide) {
  const CostModel cost(tiny_options());
  const Scheme scheme{.cp = 4};
  const base::Interval part{1, 4};
  EXPECT_EQ(cost.ring_bytes_per_token(scheme), 256);
  EXPECT_EQ(cost.ring_bytes_per_token({.tp = 4}), 128);  // fewer heads than ranks: a whole one each
  const RingTimes forward = cost.ring_times(scheme, CellKind::kForward, part, 0);
  // A step moves 25 tokens in 10 + 6400 ns a layer beside attention of 0.5 · 2500 / 4.
  const Work lane = Work::of_lane(25, 100, 4);
  EXPECT_EQ(lane.squares, 2500);
  EXPECT_EQ(forward.exposed_ns(lane, 4), 3 * 3 * 6410 - 2812);
  // Attention grows with the square: 40,000 tokens hide all.
  EXPECT_EQ(forward.exposed_ns(Work::of_lane(10'000, 40'000, 4), 4), 0);
  const RingTimes backward = cost.ring_times(scheme, CellKind::kBackwardInput, part, 1);
  EXPECT_EQ(backward.bytes_per_token, 512);
  EXPECT_EQ(backward.exposed_ns(lane, 4), 3 * 3 * (100 + 2 * 12'800) - 5625);
  EXPECT_EQ(cost.ring_times(scheme, CellKind::kBackwardWeight, part, 0).exposed_ns(lane, 4), 0);
  EXPECT_EQ(forward.exposed_ns(lane, 1), 0);
}

// 20,000 ns of the host for a step in a layer's forward pass, twice that in its backward pass.
TEST(CostModel, RingStepTakesTheHostsTimeAtLeast) {
  CostModel::Options options = tiny_options();
  options.ring_step_ns = 20'000;
  const CostModel cost(options);
  const Scheme scheme{.cp = 4};
  const base::Interval part{1, 4};
  const Work lane = Work::of_lane(25, 100, 4);
  const RingTimes forward = cost.ring_times(scheme, CellKind::kForward, part, 0);
  EXPECT_EQ(forward.exposed_ns(lane, 4), 3 * 3 * 20'000 - 2812) << "a transfer takes 6,410 ns";
  const RingTimes backward = cost.ring_times(scheme, CellKind::kBackwardInput, part, 0);
  EXPECT_EQ(backward.exposed_ns(lane, 4), 3 * 3 * 40'000 - 5625);
  EXPECT_EQ(forward.exposed_ns(lane, 1), 0) << "one lane has no ring";
  // Attention of 0.5 · 10,000² ns hides both.
  EXPECT_EQ(forward.exposed_ns(Work::of_lane(10'000, 40'000, 4), 4), 0);
  // A transfer that takes longer than the host decides alone.
  const Work longer = Work::of_lane(100, 400, 4);
  const RingTimes without = CostModel(tiny_options()).ring_times(scheme, CellKind::kForward, part, 0);
  EXPECT_EQ(forward.exposed_ns(longer, 4), without.exposed_ns(longer, 4));
}

// Narrow rows of 24 elements go round, and 75 foreign tokens' keys and values are made of them in each layer.
TEST(CostModel, NarrowRowsCostWhatIsMadeOfThem) {
  CostModel::Options options = tiny_options();
  options.model = model::changed(options.model, [](model::Outline& outline) {
    outline.latent = {.q_rank = 8, .kv_rank = 16, .unrotated = 8, .rotated = 8, .values = 8};
    outline.kv_heads = outline.heads;
  });
  const CostModel cost(options);
  const Scheme scheme{.pp = 2, .cp = 4};
  EXPECT_EQ(cost.ring_bytes_per_token(scheme), 24 * 4);
  EXPECT_EQ(cost.ring_bytes_per_token({.tp = 2}), 24 * 4) << "whole on every TP rank";
  EXPECT_FALSE(cost.splits_backward(scheme));
  EXPECT_TRUE(cost.splits_backward({.pp = 2}));
  const base::Interval part{1, 4};
  const RingTimes forward = cost.ring_times(scheme, CellKind::kForward, part, 0);
  const Work lane = Work::of_lane(25, 100, 4);
  const int64_t made_ns = forward.made_per_token * 75 >> Quadratic::kFractionBits;
  EXPECT_GT(made_ns, 0);
  EXPECT_NEAR(static_cast<double>(forward.exposed_ns(lane, 4)),
              std::max<double>(made_ns, 3 * 3 * 2410 - 2812), 2);
  const RingTimes backward = cost.ring_times(scheme, CellKind::kBackwardInput, part, 0);
  EXPECT_NEAR(static_cast<double>(backward.made_per_token), 3.0 * static_cast<double>(forward.made_per_token),
              3);
}

TEST(Work, LanesShareAttentionAndKeepTheirTokens) {
  const Work lane = Work::of_lane(34, 101, 3);
  EXPECT_EQ(lane.tokens, 34);
  EXPECT_EQ(lane.squares, (101 * 101 + 2) / 3);
  EXPECT_EQ(Work::of_lane(7, 7, 1).squares, 49);
}

// Pairs of a token with those that it sees, twice, but for what l² leaves out of l·(l + 1) too.
// Pairs of a token and one that it sees, twice and without itself on the diagonal, as squares count them.
TEST(Work, BranchesAttendToThePrefixAndThemselves) {
  const strategy::MicroBatchSequence alike{0, 100 + 3 * 40, 100, 40};
  EXPECT_EQ(Work::of_lane(220, alike, 1).squares, 100 * 100 + 3 * (140 * 140 - 100 * 100));
  EXPECT_EQ(Work::of_lane(220, alike, 1).tokens, 220);
  for (const int64_t window : {1, 30, 90, 120, 500}) {
    const int64_t text = windowed_square(140, window), prefix = windowed_square(100, window);
    EXPECT_EQ(Work::of_lane(220, alike, 1, window).windowed, prefix + 3 * (text - prefix));
  }
  EXPECT_EQ(Work::of_lane(55, alike, 4).squares, Work::of_lane(220, alike, 1).squares / 4);
  // Branches of different lengths count the squares of their mean token's branch.
  const strategy::Sequence sequence{.length_tokens = 10 + 60, .branches = {10, 50}};
  const strategy::MicroBatchSequence different = strategy::micro_batch_sequence(0, sequence);
  EXPECT_NEAR(static_cast<double>(Work::of_lane(70, different, 1).squares),
              10 * 10 + 2 * 10 * 60 + 10 * 10 + 50 * 50, 60);
}

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
  options.model = model::changed(options.model, [](model::Outline& outline) {
    outline.window = 10;
    outline.block_types.resize(static_cast<size_t>(outline.layers));
    for (const size_t layer : {1, 3}) outline.block_types[layer].windowed = true;
  });
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
  const RingTimes ring = cost.ring_times({.cp = 4}, CellKind::kForward, {1, 5}, 0);
  EXPECT_EQ(ring.layers, 2);
  EXPECT_EQ(ring.windowed_layers, 2);
  // 25 tokens a lane of one sequence of 100: both chunks see ten tokens of others, in two steps of 10 ns.
  const Work lane = Work::of_lane(25, 100, 4, 10);
  EXPECT_EQ(lane.windowed, 475);
  RingTimes windows = ring;
  windows.layers = 0;
  const int64_t hidden = 475 / 2 * 2 * 3 / 4;
  EXPECT_NEAR(windows.exposed_ns(lane, 4), 2 * (2 * 10 + 256 * 20) - hidden, 2);
  // The host starts two steps, too.
  RingTimes slow = windows;
  slow.host_ns = 9000;
  EXPECT_NEAR(slow.exposed_ns(lane, 4), 2 * (2 * 9000) - hidden, 2);
  // Never more than without windows.
  windows.window = 1000;
  const Work wide = Work::of_lane(25, 100, 4, 1000);
  RingTimes all = ring;
  all.windowed_layers = 0;
  EXPECT_EQ(windows.exposed_ns(wide, 4), 2 * (3 * 10 + 256 * 75) - 2500 * 3 / 4);
  EXPECT_EQ(all.exposed_ns(wide, 4), windows.exposed_ns(wide, 4));
}

TEST(CostModel, KnowsWhichSchemesItCanPlan) {
  const CostModel cost(tiny_options());
  EXPECT_TRUE(cost.has_scheme({.pp = 5}));
  EXPECT_FALSE(cost.has_scheme({.pp = 6}));  // five layers
  EXPECT_EQ(cost.schemes(8), (std::vector<Scheme>{{}, {.pp = 2}, {.pp = 4}}));
  EXPECT_FALSE(cost.has_scheme({.tp = 2}));
}

struct OneBackwardCell : Execution {
  bool defers_weight_gradients() const override { return false; }
};

TEST(CostModel, OneBackwardCellTakesWhatTheTwoTakeAndDefersNothing) {
  CostModel::Options options = tiny_options();
  const CostModel split(options);
  options.execution = std::make_shared<OneBackwardCell>();
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
  EXPECT_GT(MemoryCost(one, scheme).credit_tokens(2), MemoryCost(split, scheme).credit_tokens(2));
}

struct RepeatsForward : Execution {
  int repeated_forwards() const override { return 1; }
};

TEST(CostModel, RepeatingTheForwardRunsItsLayersOnceMore) {
  CostModel::Options options = tiny_options();
  const CostModel kept(options);
  options.execution = std::make_shared<RepeatsForward>();
  const CostModel again(options);
  const Scheme scheme{.pp = 2};
  const base::Interval part = kept.stage_run(scheme, 1);  // with the head, which is not run again
  Quadratic expected = kept.cell_times(scheme, CellKind::kBackward, part);
  expected += kept.cell_times(scheme, CellKind::kForward, kept.program().blocks_in(part));
  EXPECT_EQ(again.cell_times(scheme, CellKind::kBackward, part), expected);
}

TEST(CostModel, RecomputingKeepsBordersAndRepeatsTheForwardWithoutAttention) {
  const CostModel keep(tiny_options());
  const CostModel recompute = keep.under({.recompute_permille = 1000});
  const model::TokenBytes bytes = keep.program().kind_at(1).bytes({1}, 4);
  const Scheme one;
  EXPECT_EQ(MemoryCost(recompute, one).kept_bytes_per_token(1),
            (1000 * bytes.recompute_input + bytes.saved - 1) / bytes.saved);
  EXPECT_GT(MemoryCost(recompute, one).max_len_tokens(1), MemoryCost(keep, one).max_len_tokens(1));
  // Recomputation skips the MLP's second matrix: 6,144 of the 30,720 matrix elements.
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

TEST(CostModel, RecomputingAShareTakesThatShareOfTheTime) {
  const CostModel keep(tiny_options());
  const base::Interval blocks = keep.program().blocks();
  const Quadratic all = keep.under({.recompute_permille = 1000}).recompute_times({}, blocks);
  const Quadratic some = keep.under({.recompute_permille = 400}).recompute_times({}, blocks);
  EXPECT_NEAR(static_cast<double>(some.b), 0.4 * static_cast<double>(all.b), 4);
  EXPECT_EQ(some.c_ns * 5, all.c_ns * 2);
  EXPECT_EQ(keep.under({.recompute_permille = 100}).recompute_times({}, blocks), Quadratic{})
      << "of five layers";
}

}  // namespace
}  // namespace sluice::cost
