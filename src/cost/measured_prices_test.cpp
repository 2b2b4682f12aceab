#include "cost/measured_prices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "cost/memory_cost.h"

namespace sluice::cost {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(MeasuredPrices, AreWhatPlanningCountsWith) {
  const strategy::Scheme scheme{.tp = 4, .pp = 2};
  const CostModel cost(calibration_of({scheme, 2.0, 30'000, 5e6, 1000}).options);
  EXPECT_EQ(cost.stage_times(scheme, 0), Quadratic::from_ns(2.0, 30'000, 5e6));
  EXPECT_TRUE(cost.has_scheme({.tp = 4, .pp = 2, .cp = 8})) << "lanes are computed";
  EXPECT_FALSE(cost.has_scheme({.tp = 2, .pp = 2}));
}

TEST(MeasuredPrices, LongestMicroBatchIsWhatWasSaid) {
  for (const strategy::Scheme& scheme : {strategy::Scheme{}, strategy::Scheme{.tp = 4, .pp = 3}}) {
    const CostModel cost(calibration_of({scheme, 0, 30'000, 0, 1000}).options);
    EXPECT_EQ(MemoryCost(cost, scheme).max_len_tokens(scheme.ranks()), 1000);
  }
}

TEST(MeasuredPrices, WhatCannotBeIsRefused) {
  const std::pair<MeasuredPrices, const char*> faults[] = {
      {{{}, -1, 1, 0, 10}, "prices: a is -1 ns"},
      {{{}, 1, NAN, 0, 10}, "prices: b is nan ns"},
      {{{}, 1, 1, HUGE_VAL, 10}, "prices: c is inf ns"},
      {{{}, 0, 0, 5, 10}, "tokens take no time"},
      {{{}, 1, 1, 0, 0}, "max_tokens is 0"},
      {{{.cp = 2}, 1, 1, 0, 10}, "the scheme is <1,1,2>: give that of one lane"}};
  for (const auto& [prices, fault] : faults) {
    const MeasuredPrices& own = prices;
    EXPECT_THAT([&] { calibration_of(own); }, ThrowsMessage<base::InputError>(HasSubstr(fault)));
  }
}

}  // namespace
}  // namespace sluice::cost
