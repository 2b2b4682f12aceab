#include "runtime/narrow_masters.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model/test_outline.h"
#include "runtime/optimizer.h"
#include "runtime/test_equivalence.h"

namespace sluice::runtime {
namespace {

constexpr int64_t kNumbers = 1 << 16;

TEST(NarrowMasters, AreRoundedToANeighbourAndRightInTheMean) {
  for (const double value : {1.0 + 1.0 / 1024, -3.0 - 1.0 / 4096, 1e-30, 0.1, -7e20}) {
    const at::Tensor x = at::full({kNumbers}, value, at::kDouble);
    const at::Tensor rounded = rounded_by_chance(x, 77, 5).to(at::kDouble);
    const double place = std::ldexp(1.0, std::ilogb(value) - 7);  // the last of a bfloat16
    EXPECT_LT((rounded - x).abs().max().item<double>(), place) << value;
    EXPECT_NEAR((rounded.mean().item<double>() - value) / place, 0, 4 * 0.5 / std::sqrt(double{kNumbers}))
        << value;
  }
}

TEST(NarrowMasters, WhatIsNarrowAlreadyStays) {
  const at::Tensor x = at::randn({kNumbers}).to(at::kBFloat16);
  EXPECT_TRUE(at::equal(rounded_by_chance(x.to(at::kFloat), 3, 0), x));
  const float inf = std::numeric_limits<float>::infinity();
  const at::Tensor special = at::tensor({inf, -inf, 0.0F, -0.0F});
  EXPECT_TRUE(at::equal(rounded_by_chance(special, 3, 0).to(at::kFloat), special));
  const at::Tensor none = at::full({100}, std::nan("")).to(at::kFloat);
  EXPECT_TRUE(at::isnan(rounded_by_chance(none, 3, 0)).all().item<bool>());
}

TEST(NarrowMasters, ChanceIsOfThePlaceAndTheSeed) {
  const at::Tensor x = at::full({1000}, 1.001F);
  const at::Tensor all = rounded_by_chance(x, 9, 100);
  EXPECT_TRUE(at::equal(all.narrow(0, 300, 200), rounded_by_chance(x.narrow(0, 0, 200), 9, 400)));
  EXPECT_FALSE(at::equal(all, rounded_by_chance(x, 10, 100)));
}

// A master takes two bytes instead of four, and has no copy if the compute dtype is bfloat16.
TEST(NarrowMasters, TakeHalfOfWideOnes) {
  const model::ParameterTable table = model::parameter_table(model::sliced_outline());
  for (const auto& [compute, wide, narrow] :
       {std::tuple{comm::DType::kBFloat16, 18, 14}, {comm::DType::kFloat32, 16, 18}}) {
    const ParameterStore before(table, {.precision = {compute}});
    const ParameterStore after(table, {.precision = {compute, Masters::kBFloat16}});
    EXPECT_EQ(before.owner_bytes(), wide * table.size());
    EXPECT_EQ(after.owner_bytes(), narrow * table.size());
  }
}

// Steps of a fiftieth of a last place: rounding to the nearest would lose all of them.
TEST(NarrowMasters, FollowStepsThatAreSmallerThanTheirLastPlace) {
  const model::ParameterTable table = model::parameter_table(model::sliced_outline());
  ParameterStore store(table, {.precision = {comm::DType::kBFloat16, Masters::kBFloat16}});
  for (const model::Bucket& bucket : table.buckets) store.owner(bucket.index).master.fill_(1);
  store.refresh_compute_copies();
  const double step = 1.0 / 128 / 50;
  for (int64_t number = 1; number <= 50; ++number) {
    for (const model::Bucket& bucket : table.buckets) store.owner(bucket.index).gradient.fill_(-1);
    update(store, {.lr = step, .weight_decay = 0, .clip = 0, .update = number}, /*targets=*/1, 1);
  }
  double sum = 0;
  for (const model::Bucket& bucket : table.buckets)
    sum += store.owner(bucket.index).master.to(at::kDouble).sum().item<double>();
  EXPECT_NEAR(sum / static_cast<double>(table.size()), 1 + 50 * step, 0.1 * 50 * step);
}

RunOptions narrow_options() {
  RunOptions options;
  options.masters = Masters::kBFloat16;
  options.steps = 10;
  return options;
}

TEST(NarrowMasters, RoundAlikeUnderEveryStrategy) {
  RunOptions options = narrow_options();
  const RunRecord one_rank = run_in_process(options);
  for (const auto& [world_size, strategies] :
       {std::pair{6, std::vector<std::string>{"<3,2,1>", "<2,1,1> + <1,2,2>", "6x<1,1,1>"}},
        {4, {"<1,1,4,4>", "<2,1,2>"}}}) {
    options.world_size = world_size;
    options.strategies = strategies;
    expect_as_one_rank(options, {dealt_plan}, one_rank);
  }
}

TEST(NarrowMasters, LearnAsWideOnesDo) {
  RunOptions options = narrow_options();
  options.steps = 20;
  const RunRecord narrow = run_in_process(options);
  options.masters = Masters::kWide;
  const RunRecord wide = run_in_process(options);
  EXPECT_NE(narrow.losses.back(), wide.losses.back());
  const double learned = wide.losses.front() - wide.losses.back();
  EXPECT_GT(learned, 0);
  EXPECT_NEAR(narrow.losses.back(), wide.losses.back(), 0.1 * learned);
}

}  // namespace
}  // namespace sluice::runtime
