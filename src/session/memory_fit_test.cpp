#include "session/memory_fit.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "cost/memory_cost.h"
#include "session/planning_inputs.h"

namespace sluice::session {
namespace {

FitRequest request(const std::string& model, const std::string& cluster, int gpus, int64_t length) {
  const PlanningInputs inputs = resolve_machine({.gpus = gpus, .cluster = cluster, .model = model});
  return {
      .cost = inputs.cost(), .world_size = gpus, .length_tokens = length, .max_cp = gpus, .max_share = gpus};
}

constexpr int64_t kMillion = int64_t{1} << 20;

TEST(MemoryFit, AMillionTokensOfSevenBillionParametersFitEightDevices) {
  const auto fit = find_fit(request("llama-7b", "a800x8", 8, kMillion));
  ASSERT_TRUE(fit);
  EXPECT_FALSE(fit->choice.policy.keeps_all());
  EXPECT_GE(fit->longest_tokens(), kMillion);
  const DeviceBytes bytes = fit->bytes();
  EXPECT_LE(bytes.all(), bytes.usable);
  EXPECT_GT(bytes.owned, 0);
  EXPECT_GT(bytes.computing, 0);
  EXPECT_GT(bytes.activations, 0);
  EXPECT_FALSE(fit->settings().empty());
  EXPECT_FALSE(find_fit({.cost = fit->cost.under(strategy::MemoryPolicy{}),
                         .world_size = 8,
                         .length_tokens = kMillion,
                         .max_cp = 8,
                         .max_share = 8,
                         .savings = {}}))
      << "not where all is kept";
}

TEST(MemoryFit, ShortContextsNeedNothing) {
  const auto fit = find_fit(request("llama-7b", "h100x8", 8, 8192));
  ASSERT_TRUE(fit);
  EXPECT_TRUE(fit->settings().empty());
  EXPECT_EQ(fit->bytes().host, 0);
  EXPECT_TRUE(to_json(*fit)["settings"].empty());
}

// If moments have 8 bits already, only narrower masters are left to try.
TEST(MemoryFit, NamesNarrowMastersWhereNothingElseHolds) {
  FitRequest given = request("qwen3-30b-a3b", "h100x8", 8, kMillion);
  cost::CostModel::Options options = given.cost.options();
  ASSERT_TRUE(options.memory.code_moments());
  given.cost = given.cost.with(options);
  EXPECT_FALSE(find_fit(given));
  const auto other = find_fit_otherwise(given);
  ASSERT_TRUE(other);
  EXPECT_TRUE(other->narrow_masters);
  EXPECT_NE(way_out(given).find("train.master_dtype = \"bfloat16\""), std::string::npos) << way_out(given);
  ASSERT_TRUE(options.memory.narrow_masters());
  given.cost = given.cost.with(options);
  EXPECT_TRUE(find_fit(given));
}

TEST(MemoryFit, NamesMoreRanksOrAShorterContext) {
  const auto other = find_fit_otherwise(request("llama-2-70b", "a800x8", 8, kMillion));
  ASSERT_TRUE(other);
  EXPECT_GT(other->world_size, 8);
  EXPECT_NE(way_out(request("llama-2-70b", "a800x8", 8, kMillion)).find("ranks"), std::string::npos);
  EXPECT_NE(way_out(request("llama-2-70b", "a800x8", 1, int64_t{1} << 30)).find("lower the context length"),
            std::string::npos);
}

// Eight devices hold a part of the million tokens only if masters and moments are both narrow.
TEST(MemoryFit, NamesWhatNarrowMastersHoldBesideMoreRanks) {
  const std::string way = way_out(request("qwen3-32b", "h100x8", 8, kMillion));
  EXPECT_NE(way.find("on 16 ranks"), std::string::npos) << way;
  EXPECT_NE(
      way.find("; with train.master_dtype = \"bfloat16\" and optimizer.name = \"adamw_8bit\" 8 ranks hold "),
      std::string::npos)
      << way;
}

TEST(MemoryFit, SettingsAreWhatAConfigurationSays) {
  EXPECT_EQ(settings_of({}), std::vector<std::string>{});
  EXPECT_EQ(settings_of({.recompute_permille = 250, .offload_permille = 400}),
            (std::vector<std::string>{"memory.recompute = 0.25", "memory.offload = 0.4"}));
  EXPECT_EQ(settings_of({.recompute_permille = 1000}),
            std::vector<std::string>{"memory.recompute = \"full\""});
}

}  // namespace
}  // namespace sluice::session
