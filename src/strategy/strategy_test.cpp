#include "strategy/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"

namespace sluice::strategy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Strategy, PrintsAndParsesBack) {
  const std::string text = "1x<4,2,1> + 2x<1,1,2> + 1x<4,2,1>";
  const Strategy strategy = parse_strategy(text, 32);
  EXPECT_EQ(strategy.ranks(), 20);
  EXPECT_EQ(to_text(strategy), text);
  EXPECT_EQ(parse_strategy(to_text(strategy), 20), strategy);
}

TEST(Strategy, CountMayBeLeftOutAndEqualNeighboursAreJoined) {
  EXPECT_EQ(to_text(parse_strategy("<2,1,1>+<1,1,1>+1x<1,1,1>", 4)), "1x<2,1,1> + 2x<1,1,1>");
}

TEST(Strategy, RanksAreAssignedInOrderFromZero) {
  const Strategy strategy = parse_strategy("2x<1,2,1> + <2,1,1>", 8);
  ASSERT_EQ(strategy.pipelines.size(), 3u);
  EXPECT_THAT(strategy.pipelines[0].ranks, ElementsAre(0, 1));
  EXPECT_THAT(strategy.pipelines[1].ranks, ElementsAre(2, 3));
  EXPECT_THAT(strategy.pipelines[2].ranks, ElementsAre(4, 5));
}

TEST(Strategy, APipelineIsAsSlowAsItsSlowestRank) {
  const Strategy strategy = parse_strategy("2x<1,2,1> + <2,1,1>", 8);
  const Strategy slow = with_slowdowns(strategy, std::vector<int>{100, 100, 150, 300, 100, 120, 900, 900});
  EXPECT_EQ(slow.pipelines[0].slowdown_percent, 100);
  EXPECT_EQ(slow.pipelines[1].slowdown_percent, 300);
  EXPECT_EQ(slow.pipelines[2].slowdown_percent, 120);
  EXPECT_EQ(with_slowdowns(slow, {}), strategy);
  EXPECT_EQ(to_text(slow), to_text(strategy)) << "a pace is no part of its name";
}

TEST(Strategy, APipelineIsAsSlowAndAsSmallAsItsRanksDevices) {
  const Strategy strategy = parse_strategy("2x<1,1,2>", 4);
  const std::vector<Device> devices = {{100, 80}, {100, 80}, {300, 40}, {200, 60}};
  const Strategy mixed = on_devices(strategy, devices);
  EXPECT_EQ(mixed.pipelines[0].device, (Device{100, 80}));
  EXPECT_EQ(mixed.pipelines[1].device, (Device{300, 40}));
  EXPECT_EQ(with_slowdowns(mixed, std::vector<int>{100, 100, 150, 100}).pipelines[1].priced_percent(), 450);
  EXPECT_EQ(on_devices(mixed, {}), strategy);
}

TEST(Strategy, TooManyRanksNamesBothNumbers) {
  EXPECT_THAT([] { parse_strategy("1x<4,2,1> + 2x<1,1,2>", 8); },
              ThrowsMessage<base::InputError>(AllOf(HasSubstr("strategy '1x<4,2,1> + 2x<1,1,2>'"),
                                                    HasSubstr("uses 12 ranks"), HasSubstr("there are 8"))));
  EXPECT_THAT([] { parse_strategy("<1,1,16,16>", 8); },
              ThrowsMessage<base::InputError>(HasSubstr(
                  "it uses 16 ranks but there are 8: start more ranks or choose a smaller strategy")));
  EXPECT_THAT([] { parse_strategy("1048576x<1024,1024,1>", 8); },
              ThrowsMessage<base::InputError>(HasSubstr("uses 1099511627776 ranks")));
}

TEST(Strategy, EveryFaultIsNamedWithTheText) {
  const std::pair<std::string, std::string> faults[] = {
      {"", "names no pipeline"},
      {"   ", "names no pipeline"},
      {"0x<1,1,1>", "number of pipelines is 0: give 1 or more"},
      {"-1x<1,1,1>", "expected '<'"},
      {"2<1,1,1>", "expected 'x'"},
      {"2x", "'<' is missing"},
      {"<1,1,1> +", "'<' is missing"},
      {"+ <1,1,1>", "expected '<'"},
      {"<1,1,1> <1,1,1>", "expected '+'"},
      {"<1,1,0>", "cp is 0: give 1 or more"},
      {"9999999999x<1,1,1>", "number of pipelines is above"},
  };
  for (const auto& [text, fault] : faults) {
    EXPECT_THAT(
        [&] { parse_strategy(text, 64); },
        ThrowsMessage<base::InputError>(AllOf(HasSubstr("strategy '" + text + "'"), HasSubstr(fault))));
  }
}

TEST(Strategy, RandomBytesNeverDoMoreThanThrow) {
  const std::string alphabet = "<<<>>>,,,,xx++ 01234\t-a\xff";
  base::Rng rng(2);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (int64_t size = rng.between(0, 20); size > 0; --size) text += alphabet[rng.below(alphabet.size())];
    try {
      parse_strategy(text, 64);
    } catch (const base::InputError&) {
    }
  }
}

TEST(Strategy, RandomStrategiesSurviveTheirText) {
  base::Rng rng(3);
  for (int round = 0; round < 500; ++round) {
    Strategy strategy;
    int next = 0;
    for (int64_t count = rng.between(1, 6); count > 0; --count) {
      const auto degree = [&] { return static_cast<int>(rng.between(1, 3)); };
      Pipeline pipeline{{degree(), degree(), degree()}, {}};
      while (static_cast<int>(pipeline.ranks.size()) < pipeline.scheme.ranks())
        pipeline.ranks.push_back(next++);
      strategy.pipelines.push_back(pipeline);
    }
    EXPECT_EQ(parse_strategy(to_text(strategy), next), strategy);
    EXPECT_NO_THROW(validate(strategy, next));
  }
}

TEST(Places, TpRanksAreNeighboursThenLanesThenStages) {
  const Strategy strategy = parse_strategy("<1,1,1> + <2,3,2>", 14);
  const std::vector<Place> found = places(strategy, 14);
  EXPECT_EQ(found[0].pipeline, 0);
  int rank = 1;
  for (int stage = 0; stage < 3; ++stage) {
    for (int lane = 0; lane < 2; ++lane) {
      EXPECT_THAT(strategy.pipelines[1].tp_group(stage, lane), ElementsAre(rank, rank + 1));
      for (int t = 0; t < 2; ++t, ++rank) {
        const Place& place = found[static_cast<size_t>(rank)];
        EXPECT_EQ(place.pipeline, 1);
        EXPECT_EQ(place.stage, stage);
        EXPECT_EQ(place.lane, lane);
        EXPECT_EQ(place.t, t);
        EXPECT_EQ(strategy.pipelines[1].rank_of(stage, lane, t), rank);
      }
    }
  }
  EXPECT_EQ(found[13].pipeline, -1);
}

TEST(Places, FollowTheRanksList) {
  const Strategy strategy{{{{2, 1, 1}, {3, 1}}}};
  const std::vector<Place> found = places(strategy, 4);
  EXPECT_EQ(found[0].pipeline, -1);
  EXPECT_EQ(found[3].t, 0);
  EXPECT_EQ(found[1].t, 1);
}

TEST(ValidateStrategy, EveryFaultIsNamed) {
  const std::pair<Strategy, std::string> faults[] = {
      {{}, "a strategy has no pipeline"},
      {{{{{2, 1, 1}, {0}}}}, "needs 2 ranks but lists 1"},
      {{{{{0, 1, 1}, {}}}}, "a degree is below 1: give 1 or more"},
      {{{{{1 << 20, 1 << 20, 1 << 20}, {}}}}, "more than 1048576 ranks"},
      {{{{{1, 1, 1}, {4}}}}, "rank 4 is outside [0, 4)"},
      {{{{{1, 1, 1}, {-1}}}}, "rank -1 is outside [0, 4)"},
      {{{{{2, 1, 1}, {1, 1}}}}, "rank 1 is used twice, by pipelines 0 and 0"},
      {{{{{1, 1, 1}, {2}}, {{2, 1, 1}, {1, 2}}}}, "rank 2 is used twice, by pipelines 0 and 1"},
  };
  for (const auto& [strategy, fault] : faults) {
    EXPECT_THAT([&] { validate(strategy, 4); }, ThrowsMessage<base::InputError>(HasSubstr(fault)));
  }
}

}  // namespace
}  // namespace sluice::strategy
