#include "inference/engine_step_clock.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "inference/engine_steps.h"
#include "inference/test_scheduling.h"
#include "model/test_families.h"

namespace sluice::inference {
namespace {

cost::DecodeWork of_texts(int64_t texts, int64_t tokens, int64_t passes = 1) {
  cost::DecodeWork work{.engine_steps = passes};
  for (int64_t text = 0; text < texts; ++text) work.add_one_each(tokens, /*window=*/0);
  return work;
}

int64_t ns_on(const cost::CostModel& cost, const strategy::Scheme& scheme,
              const std::vector<cost::DecodeWork>& passes, int level = 0) {
  EngineStepClock clock(cost, scheme, level);
  for (const cost::DecodeWork& pass : passes) clock.add(pass);
  return clock.ns();
}

int64_t ns_of(const strategy::Scheme& scheme, const std::vector<cost::DecodeWork>& passes, int level = 0) {
  return ns_on(test_machine(), scheme, passes, level);
}

// A model of two widths of heads as `machine` prices it; only the wide layers' heads differ in width.
cost::CostModel with_wide_heads(const cost::CostModel& machine, const char* width) {
  cost::CostModel::Options options = machine.options();
  const std::string own = R"({"sliding_window": 5, "attention_k_eq_v": true, "hidden_size_per_layer_input": 0,
      "num_global_key_value_heads": 8, "global_head_dim": )";
  options.model = model::family_outline(options.model.outline(), "gemma4_text", (own + width + "}").c_str());
  for (auto& [tp, kinds] : options.kinds_by_tp) {
    if (kinds.size() == 3) kinds.insert(kinds.begin() + 1, kinds[1]);
  }
  return cost::CostModel(options);
}

// A yes or no is no level.
static_assert(!std::is_constructible_v<EngineStepClock, const cost::CostModel&, strategy::Scheme, bool>);

TEST(EngineStepClock, OneStageTakesPassesOneBehindTheOther) {
  const int64_t one = ns_of({}, {of_texts(8, 100)});
  EXPECT_EQ(ns_of({}, {of_texts(8, 100), of_texts(8, 100)}), 2 * one);
  EXPECT_EQ(ns_of({}, {of_texts(8, 100), {}}), one);
  EXPECT_LT(ns_of({.tp = 2}, {of_texts(4096, 100)}), ns_of({}, {of_texts(4096, 100)}));
}

// Lanes give each other as much of a layer as its own heads are wide.
TEST(EngineStepClock, LanesExchangeEachLayersOwnHeads) {
  const cost::CostModel machine = test_machine();
  const auto ns = [&](const char* width, const strategy::Scheme& scheme) {
    return ns_on(with_wide_heads(machine, width), scheme, {of_texts(64, 500)});
  };
  EXPECT_EQ(ns("256", {}), ns("512", {}));
  EXPECT_LT(ns("256", {.cp = 2}), ns("512", {.cp = 2}));
}

// A pass takes as long through stages as through one, and what it takes on the way; passes behind it take no
// more than the slowest stage.
TEST(EngineStepClock, StagesHaveAPassEach) {
  const strategy::Scheme scheme{.tp = 1, .pp = 4};
  const cost::DecodeWork pass = of_texts(64, 500);
  const int64_t whole = ns_of({}, {pass});
  const int64_t alone = ns_of(scheme, {pass, {}, {}, {}});
  EXPECT_GT(alone, whole);
  EXPECT_LT(alone, whole * 11 / 10);
  EXPECT_GT(ns_of(scheme, {pass, {}, {}, {}}, /*level=*/1), alone);
  std::vector<cost::DecodeWork> many(100, pass);
  const int64_t slowest = ns_of(scheme, many) - ns_of(scheme, {many.begin(), many.end() - 1});
  EXPECT_LT(slowest, alone * 4 / 10);
  EXPECT_NEAR(static_cast<double>(ns_of(scheme, many)), static_cast<double>(100 * slowest),
              static_cast<double>(4 * slowest));
}

// Rounds that are alike, in one entry for each of their passes, take what they take one by one.
TEST(EngineStepClock, RoundsAlikeAreTimedAtOnce) {
  const strategy::Scheme scheme{.tp = 1, .pp = 3};
  const std::vector<int64_t> texts = {30, 7, 0};
  std::vector<cost::DecodeWork> first, one_by_one, at_once;
  for (const int64_t count : texts) first.push_back(of_texts(count, 400));
  one_by_one = at_once = first;
  constexpr int64_t kRounds = 50;
  for (int64_t round = 1; round <= kRounds; ++round) {
    for (const int64_t count : texts) one_by_one.push_back(of_texts(count, 400 + round));
  }
  for (const int64_t count : texts) at_once.push_back(of_texts(count, 401, kRounds));
  const auto exact = static_cast<double>(ns_of(scheme, one_by_one));
  EXPECT_NEAR(static_cast<double>(ns_of(scheme, at_once)), exact, 0.01 * exact);
}

// If matrices don't dominate the time, stages help: each reads its layers' keys of a part of the sequences.
TEST(EngineStepClock, StagesSayLongTextsSooner) {
  const std::vector<RequestLengths> load(64, RequestLengths{8000, 300, {300}});
  const auto ns = [&](int stages, std::span<const RequestLengths> own) {
    const EngineSteps engine_steps =
        engine_steps_of(own, {.kv_blocks = 20'000, .max_num_seqs = 64, .stages = stages}, 0);
    return static_cast<double>(ns_of({.tp = 1, .pp = stages}, engine_steps.work));
  };
  const double whole = ns(1, load), four = ns(4, load), quarter = ns(1, {load.data(), 16});
  EXPECT_LT(four, 0.4 * whole);
  EXPECT_LT(four, 1.3 * quarter);
}

}  // namespace
}  // namespace sluice::inference
