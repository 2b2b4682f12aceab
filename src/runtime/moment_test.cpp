#include "runtime/moment.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/outline.h"
#include "ops/device.h"
#include "runtime/optimizer.h"
#include "runtime/test_equivalence.h"

namespace sluice::runtime {
namespace {

using Sign = Moment::Sign;

constexpr int64_t kMoments = 1000;  // seven groups and a part of one

// Magnitudes from `largest` down to largest · 2^-octaves.
at::Tensor spread(Sign sign, double octaves, double largest, at::ScalarType type = at::kFloat) {
  at::manual_seed(3);
  const at::Tensor magnitude = at::rand({kMoments}, type).mul_(-octaves).exp2_().mul_(largest);
  return sign == Sign::kAny ? magnitude * (2 * at::randint(0, 2, {kMoments}).to(type) - 1) : magnitude;
}

Moment coded(Sign sign, const at::Tensor& numbers, Seed seed = {}, int64_t place = 0) {
  Moment moment(numbers.numel(), base::MomentFormat::k8Bit, sign, numbers.options());
  moment.write(0, numbers, seed, place);
  return moment;
}

double worst_relative(const at::Tensor& read, const at::Tensor& written) {
  return ((read - written).abs() / written.abs()).max().item<double>();
}

TEST(Moment, WideOnesAreTheNumbersThemselves) {
  Moment moment(kMoments, base::MomentFormat::kWide, Sign::kAny, at::kDouble);
  EXPECT_FALSE(moment.coded());
  EXPECT_EQ(moment.nbytes(), 8 * kMoments);
  moment.read({10, 20}).fill_(3);
  EXPECT_EQ(moment.read().sum().item<double>(), 30);
  moment.write(5, at::ones({10}, at::kDouble));
  EXPECT_EQ(moment.read().sum().item<double>(), 10 + 15);
}

TEST(Moment, CodedOnesKeepTheirFirstBitsWhateverTheirMagnitude) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const double largest : {1.0, 3e-9, 7e11}) {
      const at::Tensor first = spread(Sign::kAny, 6, largest, type),
                       second = spread(Sign::kNone, 14, largest, type);
      // Errors: half a step to the nearest, a step stochastically; the largest may lose a step.
      EXPECT_LE(worst_relative(coded(Sign::kAny, first).read(), first), 1.0 / 32 + 1e-6);
      EXPECT_LE(worst_relative(coded(Sign::kNone, second).read(), second), 1.0 / 32 + 1e-6);
      EXPECT_LE(worst_relative(coded(Sign::kAny, first, 5).read(), first), 1.0 / 16 + 1e-6);
      EXPECT_LE(worst_relative(coded(Sign::kNone, second, 5).read(), second), 1.0 / 16 + 1e-6);
      const at::Tensor small = spread(Sign::kAny, 30, largest, type);
      EXPECT_LE((coded(Sign::kAny, small, 5).read() - small).abs().max().item<double>(), largest / 16);
    }
  }
  EXPECT_EQ(coded(Sign::kAny, spread(Sign::kAny, 3, 1)).nbytes(), kMoments + 8);
}

TEST(Moment, NothingOfASecondOneVanishesBesideOthers) {
  at::Tensor numbers = at::zeros({kMoments});
  EXPECT_EQ(coded(Sign::kNone, numbers, 3).read().abs().max().item<double>(), 0);
  numbers[0] = 1.0;
  numbers[1] = 1e-30;
  const at::Tensor second = coded(Sign::kNone, numbers, 3).read();
  EXPECT_GT(second[1].item<double>(), 0) << "its root divides";
  EXPECT_LT(second[1].item<double>(), 4e-6);
  // In a group of zeros alone, no zero can come from rounding.
  const int64_t group = strategy::kCodecGroup;
  EXPECT_EQ(second.narrow(0, group, kMoments - group).max().item<double>(), 0);
  EXPECT_EQ(coded(Sign::kAny, numbers).read()[1].item<double>(), 0);
}

// One rank's sum is exactly 0 where another order of the same numbers leaves rounding errors.
TEST(Moment, AZeroIsReadAsWhatDiffersFromItByRounding) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    at::Tensor exact = at::zeros({kMoments}, type), rounded = exact.clone();
    exact.slice(0, 0, kMoments, 7).fill_(3e-5);
    rounded.copy_(exact).masked_fill_(exact == 0, 1e-38);
    for (const Seed seed : {Seed(), Seed(11)}) {
      const at::Tensor one = Moment(kMoments, base::MomentFormat::k8Bit, Sign::kNone, exact.options()).read();
      EXPECT_EQ(one.abs().max().item<double>(), 0);
      EXPECT_TRUE(
          at::equal(coded(Sign::kNone, exact, seed).read(), coded(Sign::kNone, rounded, seed).read()));
    }
  }
}

TEST(Moment, ChanceIsRightInTheMeanAndFollowsThePlace) {
  const at::Tensor numbers = spread(Sign::kAny, 20, 0.9);
  at::Tensor sum = at::zeros({kMoments}, at::kDouble);
  constexpr int kTimes = 4000;
  for (uint32_t time = 0; time < kTimes; ++time)
    sum += coded(Sign::kAny, numbers, uint64_t{hashed(time)} << 32).read();
  const at::Tensor step = numbers.abs().clamp_min(std::exp2(-7)) / 16;
  EXPECT_LE(((sum / kTimes - numbers).abs() / step).max().item<double>(), 4.5 * 0.5 / std::sqrt(kTimes));

  const at::Tensor all = coded(Sign::kAny, numbers, 9, 256).read();
  const at::Tensor behind =
      coded(Sign::kAny, numbers.narrow(0, 384, kMoments - 384).contiguous(), 9, 640).read();
  EXPECT_TRUE(at::equal(all.narrow(0, 384, kMoments - 384), behind));
}

TEST(Moment, WhatWasReadIsWrittenWithTheSameBits) {
  for (const Sign sign : {Sign::kAny, Sign::kNone}) {
    for (uint64_t seed = 1; seed < 40; ++seed) {
      const Moment before = coded(sign, spread(sign, 40, std::exp2(static_cast<double>(seed))), seed);
      const at::Tensor read = before.read();
      EXPECT_TRUE(at::equal(coded(sign, read).read(), read)) << seed;
      EXPECT_TRUE(at::equal(coded(sign, read, 77).read(), read)) << "nothing is left to chance";
      at::Tensor power = read.clamp(-0.25, 0.25);
      power[0] = 0.25;  // the largest of its group
      const at::Tensor read_power = coded(sign, power).read();
      EXPECT_EQ(read_power[0].item<double>(), 0.25);
      EXPECT_TRUE(at::equal(coded(sign, read_power, 77).read(), read_power));
    }
  }
}

TEST(Moment, NumbersThatAreNoneComeBackAsNone) {
  for (const double bad : {std::nan(""), HUGE_VAL, 3e38}) {
    at::Tensor numbers = at::full({300}, 0.75);
    numbers[130] = bad;
    const at::Tensor read = coded(Sign::kNone, numbers).read();
    EXPECT_EQ(read.isnan().sum().item<int64_t>(), 128) << bad;
    EXPECT_TRUE(at::equal(read.narrow(0, 0, 128), numbers.narrow(0, 0, 128)));
  }
}

TEST(Moment, OperatorsAndLoopsGiveTheSameBits) {
  for (const Sign sign : {Sign::kAny, Sign::kNone}) {
    for (const Seed seed : {Seed(), Seed(0x123456789abcdef)}) {
      at::Tensor numbers = spread(sign, 45, 1e-4);
      numbers[3] = 0;
      numbers[200] = std::nan("");
      const at::TensorOptions bytes = at::dtype(at::kByte);
      at::Tensor codes = at::empty({kMoments}, bytes), exponents = at::empty({8}, bytes);
      at::Tensor same_codes = at::empty({kMoments}, bytes), same_exponents = at::empty({8}, bytes);
      encode_moments(sign, numbers, seed, 1280, codes, exponents);
      aten::encode_moments(sign, numbers, seed, 1280, same_codes, same_exponents);
      EXPECT_TRUE(at::equal(exponents, same_exponents));
      const at::Tensor of_numbers = exponents.ne(255).repeat_interleave(128).narrow(0, 0, kMoments);
      EXPECT_TRUE(at::equal(codes.masked_select(of_numbers), same_codes.masked_select(of_numbers)));
      at::Tensor read = at::empty({kMoments}), same_read = at::empty({kMoments});
      decode_moments(sign, codes, exponents, read);
      aten::decode_moments(sign, codes, exponents, same_read);
      EXPECT_TRUE(at::equal(read.nan_to_num(-7), same_read.nan_to_num(-7)));
    }
  }
}

TEST(MomentsOf8Bits, TakeTenBytesAParameterWithMasterAndGradient) {
  const model::ParameterTable table = model::parameter_table(coded_outline());
  const ParameterStore store(table, {.moments = base::MomentFormat::k8Bit});
  int64_t coded = 0, others = 0;
  for (const model::Bucket& bucket : table.buckets)
    (store.owner(bucket.index).exp_avg.coded() ? coded : others) += bucket.size;
  ASSERT_GT(coded, 4 * others);
  EXPECT_NEAR(static_cast<double>(store.owner_bytes()), static_cast<double>(10 * coded + 16 * others),
              0.002 * static_cast<double>(store.owner_bytes()));
}

TEST(MomentsOf8Bits, LearnAsWideOnesDo) {
  RunOptions options;
  options.model = coded_outline();
  options.steps = 20;
  const RunRecord wide = run_in_process(options);
  options.moments = base::MomentFormat::k8Bit;
  const RunRecord coded = run_in_process(options);
  EXPECT_NE(coded.losses.back(), wide.losses.back());
  const double learned = wide.losses.front() - wide.losses.back();
  EXPECT_GT(learned, 0);
  EXPECT_NEAR(coded.losses.back(), wide.losses.back(), 0.05 * learned);
}

// Each group has one owner and random bits depend on the place, so strategies round alike.
TEST(MomentsOf8Bits, RoundAlikeUnderEveryStrategy) {
  RunOptions options;
  options.model = coded_outline();
  options.moments = base::MomentFormat::k8Bit;
  const RunRecord one_rank = run_in_process(options);
  for (const auto& [world_size, strategies] :
       {std::pair{6, std::vector<std::string>{"<3,2,1>", "<2,1,1> + <1,2,2>", "6x<1,1,1>"}},
        {8, {"<2,2,2,2>", "<1,1,8,8>", "<1,2,4,2>"}}}) {
    options.world_size = world_size;
    options.strategies = strategies;
    expect_as_one_rank(options, {dealt_plan}, one_rank);
  }
}

// Expects the losses of these strategies to be one rank's.
void expect_losses_of_one_rank(RunOptions options) {
  options.moments = base::MomentFormat::k8Bit;
  options.steps = 10;
  const RunRecord one_rank = run_in_process(options);
  for (const auto& [world_size, strategies] :
       {std::pair{6, std::vector<std::string>{"<3,2,1>", "<1,2,3>", "6x<1,1,1>"}},
        {4, {"<1,1,4,4>", "<2,1,2>"}}}) {
    options.world_size = world_size;
    options.strategies = strategies;
    const RunRecord run = run_in_process(options);
    ASSERT_EQ(run.losses.size(), one_rank.losses.size());
    for (size_t step = 0; step < run.losses.size(); ++step)
      EXPECT_NEAR(run.losses[step], one_rank.losses[step], 1e-11 * one_rank.losses[step])
          << strategies.front() << ", step " << step;
  }
}

// Many experts get one token or none. Most of their gradients are 0, or the rounding error of another order
// of sums.
TEST(MomentsOf8Bits, RoundAlikeWhereExpertsGetOneToken) {
  for (const int64_t experts : {40, 96}) {
    RunOptions options;
    options.model = coded_outline();
    options.model.experts = {.count = experts, .per_token = 1, .hidden = 16};
    options.sequences = 3;
    expect_losses_of_one_rank(options);
  }
}

// A token that stands only at ends predicts nothing and no token attends to it: its row's gradient is 0.
TEST(MomentsOf8Bits, RoundAlikeWhereRowsAreSeenOnlyAtEnds) {
  for (const bool tied : {false, true}) {
    RunOptions options;
    options.model = coded_outline();
    options.model.vocab = 1999;
    options.model.tie_embeddings = tied;
    expect_losses_of_one_rank(options);
  }
}

}  // namespace
}  // namespace sluice::runtime
