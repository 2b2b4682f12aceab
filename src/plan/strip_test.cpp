#include "plan/strip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "plan/level.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

std::vector<int64_t> random_lengths(base::Rng& rng, int64_t longest) {
  std::vector<int64_t> lengths;
  for (int64_t i = rng.between(1, 60); i > 0; --i) lengths.push_back(rng.between(1, rng.between(1, longest)));
  return lengths;
}

// By lane and pass, in their order.
std::vector<const Load*> loads_on(const Filling& filling, int pass, int lane) {
  std::vector<const Load*> loads;
  for (const Load& load : filling.loads) {
    const bool covers = load.lanes.first <= lane && lane < load.lanes.end();
    if (load.pass == pass && covers && !load.divided) loads.push_back(&load);
  }
  return loads;
}

void expect_lanes_run_one_load_at_a_time(const Filling& filling, int passes, int lanes) {
  for (int pass = 0; pass < passes; ++pass) {
    for (int lane = 0; lane < lanes; ++lane) {
      int64_t free_ns = 0;
      for (const Load* load : loads_on(filling, pass, lane)) {
        EXPECT_GE(load->start_ns, free_ns);
        free_ns = load->end_ns();
      }
    }
  }
}

void expect_micro_batches_hold_their_sequences(const Packing& packing, const Filling& filling) {
  ASSERT_EQ(filling.micro_batch_of.size(), packing.lengths.size());
  for (const Load& load : filling.loads) {
    int64_t takes_ns = 0;
    for (LanePartIndex next = load.first_micro_batch; next.exists();) {
      const LanePart& of = filling.micro_batches[static_cast<size_t>(next)];
      cost::Work work;
      int64_t exposed_ns = 0;
      if (load.part_of.exists()) {
        const Load& divided = filling.loads[load.part_of];
        const LanePart& part = filling.micro_batches[divided.first_micro_batch];
        work = part.work;
        exposed_ns = part.takes.both_ns() - packing.scheme.micro_batch_work_ns(work, 1);
      }
      for (size_t place = 0; place < packing.lengths.size(); ++place) {
        if (filling.micro_batch_of[place] == next)
          work += packing.scheme.share_of(packing.lengths[place], load.lanes.lanes);
      }
      EXPECT_EQ(work.tokens, of.work.tokens);
      EXPECT_LE(work.tokens, packing.scheme.lane_max_len_tokens());
      EXPECT_EQ(of.takes.both_ns(), packing.scheme.micro_batch_work_ns(work, load.lanes.lanes) + exposed_ns);
      takes_ns += of.takes.both_ns();
      next = of.next;
    }
    EXPECT_EQ(load.takes.both_ns(), takes_ns);
  }
}

TEST(Strip, WhatIsFilledLiesOnItsLanesAndEndsInTime) {
  int filled = 0, beside = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    base::Rng rng(seed, 31);
    const int share = rng.below(2) == 0 ? 1 : 4;
    const strategy::Scheme scheme{.cp = 4 * static_cast<int>(rng.between(1, 3)), .fsdp = share};
    cost::CostModel::Options machine = test_cost().options();
    machine.topology = 1 << rng.below(3);
    const cost::CostModel cost(machine);
    const SchemeCost priced(scheme, cost, scheme.cp);
    strategy::Pipeline pipeline{.scheme = scheme, .ranks = std::vector<int>(static_cast<size_t>(scheme.cp))};
    std::iota(pipeline.ranks.begin(), pipeline.ranks.end(), 0);
    const std::vector<int64_t> lengths = random_lengths(rng, priced.max_len_tokens());
    std::vector<int> members(lengths.size());
    std::iota(members.begin(), members.end(), 0);
    Packing packing(pipeline, priced, lengths, members, {});
    Strip strip(packing);
    const int passes = share > 1 ? static_cast<int>(rng.between(1, 6)) : 1;
    const int64_t pass_ns =
        rng.between(1, 4) * priced.micro_batch_work_ns(priced.work_of(lengths), 1) / scheme.cp / passes;
    Trial trial{.passes = std::vector(static_cast<size_t>(passes),
                                      SchemeCost::Halves{pass_ns / 3, pass_ns - pass_ns / 3}),
                .apart = share > 1 && rng.below(2) == 0,
                .least_lanes = 1 << rng.below(3),
                .stacks = share == 1 && rng.below(2) == 0,
                .keeps_whole = rng.below(2) == 0};
    if (!strip.fill(trial)) continue;
    ++filled;
    const Filling& filling = strip.filling();
    EXPECT_LE(filling.end_ns(trial.apart), pass_ns * passes) << "seed " << seed;
    expect_lanes_run_one_load_at_a_time(filling, passes, scheme.cp);
    expect_micro_batches_hold_their_sequences(packing, filling);
    const std::vector<strategy::PipelineMicroBatch> micro_batches = strip.pipeline_micro_batches(filling);
    const auto parts =
        std::ranges::count_if(filling.loads, [](const Load& of) { return of.part_of.exists(); });
    EXPECT_EQ(std::ssize(micro_batches), std::ssize(filling.micro_batches) - parts);
    if (std::ranges::any_of(micro_batches,
                            [](const strategy::PipelineMicroBatch& of) { return !of.own.empty(); }))
      ++beside;
    const int64_t rounding_ns = 3 * std::ssize(micro_batches);
    if (share > 1) continue;
    EXPECT_LE(packing.timer.makespan_ns(micro_batches), pass_ns + rounding_ns) << "seed " << seed;
  }
  EXPECT_GT(filled, 100);
  EXPECT_GT(beside, 10);
}

// Priced again and again in any order, as the scheme prices it; keys of the table collide.
TEST(WidthTimes, WorkTakesWhatTheSchemeSays) {
  const cost::CostModel cost = test_cost();
  const strategy::Scheme scheme{.cp = 16, .fsdp = 16};
  const SchemeCost priced(scheme, cost, scheme.cp);
  const std::vector<int64_t> lengths = {500, 40};
  const std::vector<int> widths = {1, 2, 3, 8, 16};
  WidthTimes times(priced, lengths, widths);
  base::Rng rng(7, 41);
  for (int i = 0; i < 20'000; ++i) {
    const auto width = static_cast<int>(rng.below(widths.size()));
    const cost::Work work{.tokens = rng.between(1, 60), .squares = rng.between(1, 20) * 100};
    const SchemeCost::Halves takes = times.takes(work, width);
    const SchemeCost::Halves expected = priced.on(widths[static_cast<size_t>(width)]).halves(work);
    ASSERT_EQ(takes.forward_ns, expected.forward_ns) << i;
    ASSERT_EQ(takes.backward_ns, expected.backward_ns) << i;
  }
}

// Lanes that are full to the last token are filled, and one token more is one too many, whatever the time.
TEST(Strip, PassesHoldAsManyTokensAsTheirLanes) {
  const cost::CostModel cost = test_cost();
  const strategy::Scheme scheme{.cp = 4, .fsdp = 4};
  const SchemeCost priced(scheme, cost, scheme.cp);
  const strategy::Pipeline pipeline{.scheme = scheme, .ranks = {0, 1, 2, 3}};
  constexpr int kPasses = 3;
  const int64_t room = priced.lane_max_len_tokens();
  const Trial ample{.passes =
                        std::vector(kPasses, SchemeCost::Halves{cost::kLongestNs / 2, cost::kLongestNs / 2})};
  const auto fills = [&](const std::vector<int64_t>& lengths) {
    std::vector<int> members(lengths.size());
    std::iota(members.begin(), members.end(), 0);
    const Packing packing(pipeline, priced, lengths, members, {});
    return Strip(packing).fill(ample);
  };
  std::vector<int64_t> full(kPasses * 4, room - 1);
  EXPECT_TRUE(fills(full));
  full.insert(full.end(), kPasses * 4, 1);
  EXPECT_TRUE(fills(full));
  full.push_back(1);
  EXPECT_FALSE(fills(full));
}

TEST(Level, NoPassEndsLaterAndMostEndSooner) {
  const cost::CostModel cost = test_cost();
  constexpr int kLanes = 16;
  const strategy::Scheme scheme{.cp = kLanes, .fsdp = kLanes};
  const SchemeCost priced(scheme, cost, kLanes);
  strategy::Pipeline pipeline{.scheme = scheme, .ranks = std::vector<int>(kLanes)};
  std::iota(pipeline.ranks.begin(), pipeline.ranks.end(), 0);
  int filled = 0, sooner = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    base::Rng rng(seed, 37);
    const std::vector<int64_t> lengths = random_lengths(rng, priced.max_len_tokens() / 4);
    std::vector<int> members(lengths.size());
    std::iota(members.begin(), members.end(), 0);
    const Packing packing(pipeline, priced, lengths, members, {});
    Strip strip(packing);
    const int passes = static_cast<int>(rng.between(1, 3));
    const int64_t pass_ns =
        rng.between(2, 4) * priced.micro_batch_work_ns(priced.work_of(lengths), 1) / kLanes / passes;
    Trial trial{.passes = std::vector(static_cast<size_t>(passes),
                                      SchemeCost::Halves{pass_ns / 3, pass_ns - pass_ns / 3}),
                .least_lanes = 1 << rng.below(3),
                .spreads = rng.below(2) == 0};
    if (!strip.fill(trial)) continue;
    ++filled;
    Filling levelled = strip.filling();
    level(packing, strip.times(), levelled);
    expect_micro_batches_hold_their_sequences(packing, levelled);
    const auto before = strip.filling().longest(), after = levelled.longest();
    ASSERT_EQ(after.size(), before.size());
    for (size_t pass = 0; pass < before.size(); ++pass) {
      EXPECT_LE(after[pass].forward_ns, before[pass].forward_ns) << "seed " << seed;
      EXPECT_LE(after[pass].backward_ns, before[pass].backward_ns) << "seed " << seed;
    }
    if (levelled.end_ns(true) < strip.filling().end_ns(true)) ++sooner;
  }
  EXPECT_GT(filled, 100);
  EXPECT_GT(sooner, filled / 2);
}

}  // namespace
}  // namespace sluice::plan
