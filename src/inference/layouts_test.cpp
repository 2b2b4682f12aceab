#include "inference/layouts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "inference/serving.h"
#include "inference/test_scheduling.h"
#include "model/outline.h"

namespace sluice::inference {
namespace {

std::vector<RequestLengths> load_of(int64_t requests, int64_t said) {
  std::vector<RequestLengths> load;
  for (int64_t i = 0; i < requests; ++i) load.push_back({100, said, {said / 2 + i % 7, said}});
  return load;
}

TEST(SayingSchemes, HoldTheModelAndDivideTheRanks) {
  const cost::CostModel cost = test_machine();
  const int64_t whole = parameter_bytes(cost, {});
  EXPECT_EQ(generation_schemes(cost, 4, 2 * whole).front(), (strategy::Scheme{}));
  for (const strategy::Scheme& scheme : generation_schemes(cost, 16, whole / 3)) {
    EXPECT_GE(scheme.ranks(), 4) << to_text(scheme);
    EXPECT_EQ(16 % scheme.ranks(), 0);
    EXPECT_LE(scheme.tp, 8);
  }
  EXPECT_EQ(generation_schemes(cost, 16, whole / 3).front().tp, 4);  // TP before stages
  EXPECT_EQ(generation_schemes(cost, 2, 1).size(), 1);               // none fits: what fits best
  EXPECT_EQ(generation_schemes(cost, 2, 1).front().ranks(), 2);
}

// One layer, of which TP reaches two ranks: nothing but lanes gets the experts onto more.
TEST(SayingSchemes, DivideExpertsWhereNothingElseHoldsTheModel) {
  model::Outline outline = served_outline();
  outline.layers = 1;
  outline.heads = outline.kv_heads = 2;
  outline.experts = {.count = 64, .per_token = 2, .hidden = 1024, .normalised = true};
  const cost::CostModel cost = test_machine(int64_t{8} << 30, outline);
  const int64_t whole = parameter_bytes(cost, {}), half = parameter_bytes(cost, {.tp = 2});
  EXPECT_LT(parameter_bytes(cost, {.cp = 8, .fsdp = 8, .ep = 8}), half);
  for (const strategy::Scheme& scheme : generation_schemes(cost, 8, whole + 1))
    EXPECT_EQ(scheme.ep, 1) << to_text(scheme);
  const std::vector<strategy::Scheme> divided = generation_schemes(cost, 8, half - 1);
  ASSERT_FALSE(divided.empty());
  for (const strategy::Scheme& scheme : divided) {
    EXPECT_EQ(scheme.ep, scheme.cp) << to_text(scheme);
    EXPECT_GT(scheme.ep, 1) << to_text(scheme);
    EXPECT_LT(parameter_bytes(cost, scheme), half) << to_text(scheme);
    EXPECT_EQ(lanes_fault(scheme), "");
  }
  EXPECT_NE(lanes_fault({.cp = 4, .fsdp = 4}), "");
}

TEST(SayingLayouts, FewLongTextsTakeMoreRanksAPipelineThanManyShortOnes) {
  const cost::CostModel cost = test_machine();
  const std::vector<strategy::Scheme> schemes =
      generation_schemes(cost, 8, cost.options().memory.device_bytes);
  const KvCacheBudget room{.cache_bytes = 4e9};
  const std::vector<GenerationLayout> few = generation_layouts(cost, schemes, load_of(4, 4000), room, 8);
  const std::vector<GenerationLayout> many = generation_layouts(cost, schemes, load_of(2000, 60), room, 8);
  EXPECT_GT(few.front().scheme.tp, many.front().scheme.tp);
  EXPECT_EQ(few.front().pipelines * few.front().scheme.ranks(), 8);
  for (size_t i = 1; i < few.size(); ++i) EXPECT_LE(few[i - 1].ns(), few[i].ns());
}

TEST(SayingLayouts, LeaveOutWhereTheLongestTextFindsNoRoom) {
  const cost::CostModel cost = test_machine();
  // On one rank a token takes 12 · 2 · 8 · 128 · 2 bytes.
  const KvCacheBudget room{.cache_bytes = 12.0 * 2 * 8 * 128 * 2 * 3000};
  const strategy::Scheme schemes[] = {{}, {.tp = 2}};
  const std::vector<GenerationLayout> layouts = generation_layouts(cost, schemes, load_of(4, 4000), room, 2);
  ASSERT_EQ(layouts.size(), 1);
  EXPECT_EQ(layouts.front().scheme.tp, 2);
}

// Lanes hold a prompt that no rank's cache holds, and compute one that any holds sooner.
TEST(SayingLayouts, LanesHoldAndReadLongPrompts) {
  const cost::CostModel cost = test_machine();
  const std::vector<strategy::Scheme> schemes =
      generation_schemes(cost, 8, cost.options().memory.device_bytes);
  const double token_bytes = 12.0 * 2 * 8 * 128 * 2;
  const std::vector<RequestLengths> load = {{30'000, 10, {10}}};
  const std::vector<GenerationLayout> tight =
      generation_layouts(cost, schemes, load, {.cache_bytes = token_bytes * 5000}, 8);
  ASSERT_FALSE(tight.empty());
  for (const GenerationLayout& layout : tight) EXPECT_GE(layout.scheme.ranks(), 8) << to_text(layout.scheme);
  EXPECT_TRUE(std::ranges::any_of(tight, [](const GenerationLayout& of) { return of.scheme.cp == 8; }));
  const auto ns_of = [&](int lanes) {
    return simulate_generation(cost, {.cp = lanes}, load, {.cache_bytes = token_bytes * 40'000}, 8)
        .generation_ns;
  };
  EXPECT_LT(ns_of(2), ns_of(1) * 6 / 10);
  EXPECT_LT(ns_of(8), ns_of(1) / 2);
  // Several lanes are not tried for short sequences.
  for (const GenerationLayout& layout :
       generation_layouts(cost, schemes, load_of(4, 4000), {.cache_bytes = 4e9}, 8))
    EXPECT_EQ(layout.scheme.cp, 1);
}

TEST(SayingLayouts, SlowestPipelineCounts) {
  const cost::CostModel cost = test_machine();
  std::vector<RequestLengths> load(2, RequestLengths{10, 1000, {10}});
  load[1].output_lens = {1000};
  const GenerationLayout two = simulate_generation(cost, {}, load, {.cache_bytes = 4e9}, 2);
  EXPECT_EQ(two.engine_steps, 1000);
  EXPECT_EQ(two.generation_ns,
            simulate_generation(cost, {}, {&load[1], 1}, {.cache_bytes = 4e9}, 1).generation_ns);
}

TEST(Serving, KeepsTimeAndMemoryWithTheMostTexts) {
  const cost::CostModel cost = test_machine();
  const Demand demand{.input_len = 400, .output_len = 200, .tpot_ns = 20'000'000};
  for (const ServingLayout& layout : serving_layouts(cost, demand, 8)) {
    if (layout.sequences == 0) continue;
    EXPECT_LE(layout.engine_step_ns, demand.tpot_ns);
    EXPECT_LE(layout.bytes, cost.options().memory.device_bytes);
  }
  const auto best = [&](const Demand& of) { return serving_layouts(cost, of, 8).front(); };
  Demand slow = demand, elsewhere = demand;
  slow.tpot_ns *= 4;
  elsewhere.disaggregated_prefill = true;
  EXPECT_GE(best(slow).tokens_per_s(), best(demand).tokens_per_s());
  Demand long_texts = demand;
  long_texts.input_len = 60'000;
  int64_t alone = 0, on_lanes = 0;  // texts of one rank, and of eight lanes
  for (const ServingLayout& layout : serving_layouts(cost, long_texts, 8)) {
    if (layout.scheme == strategy::Scheme{}) alone = layout.sequences;
    if (layout.scheme == strategy::Scheme{.cp = 8}) on_lanes = layout.sequences;
    EXPECT_LE(layout.sequences == 0 ? 0 : layout.bytes, cost.options().memory.device_bytes);
  }
  EXPECT_GE(on_lanes, 8 * alone);
  EXPECT_GT(on_lanes, 0);
  EXPECT_GT(best(elsewhere).tokens_per_s(), best(demand).tokens_per_s());
}

TEST(Serving, SteadyWorkIsThatOfTextsOneBehindTheOther) {
  // A thousand texts, eight at a time: as many passes as said tokens by eight, near enough.
  const Demand demand{.input_len = 64, .output_len = 50};
  const std::vector<RequestLengths> load(1000, RequestLengths{64, 50, {50}});
  const EngineSteps engine_steps = engine_steps_of(load, {.kv_blocks = 1000, .max_num_seqs = 8}, 0);
  const cost::DecodeWork steady = steady_work(demand, 8, 0);
  cost::Wide keys = 0;
  for (const cost::DecodeWork& work : engine_steps.work) keys += work.all.keys;
  const double rounds = 1000.0 / 8;
  EXPECT_NEAR(static_cast<double>(engine_steps.count), rounds * static_cast<double>(steady.engine_steps),
              0.03 * static_cast<double>(engine_steps.count));
  EXPECT_NEAR(static_cast<double>(keys), rounds * static_cast<double>(steady.all.keys),
              0.03 * static_cast<double>(keys));
}

}  // namespace
}  // namespace sluice::inference
