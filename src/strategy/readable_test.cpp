#include "strategy/readable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace sluice::strategy {
namespace {

using testing::HasSubstr;

std::string fault(const std::string& text) {
  try {
    parse_strategy(text, 64);
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Readable, SchemesReadBackToThemselves) {
  for (const Scheme& scheme :
       {Scheme{}, Scheme{.tp = 2}, Scheme{.pp = 3}, Scheme{.cp = 8, .fsdp = 8, .ep = 4},
        Scheme{.tp = 2, .pp = 2, .cp = 8, .fsdp = 4}, Scheme{.cp = 12}}) {
    EXPECT_EQ(parse_scheme(readable(scheme)), scheme) << readable(scheme);
    EXPECT_EQ(parse_scheme(to_text(scheme)), scheme);
  }
  EXPECT_EQ(readable(Scheme{.tp = 2, .pp = 2, .cp = 8, .fsdp = 8, .ep = 4}), "tp2,pp2,cp8,fsdp8,ep4");
  EXPECT_EQ(readable(Scheme{}), "tp1");
  EXPECT_EQ(parse_scheme("EP2, cp4 ,FSDP 2"), (Scheme{.cp = 4, .fsdp = 2, .ep = 2}));
}

TEST(Readable, StrategiesReadBackToThemselves) {
  const Strategy strategy = parse_strategy("1x<4,2,1> + 2x<1,1,2> + <1,1,1>", 64);
  EXPECT_EQ(readable(strategy), "tp4,pp2 + 2x cp2 + tp1");
  EXPECT_EQ(parse_strategy(readable(strategy), 64), strategy);
  EXPECT_EQ(parse_strategy("tp4,pp2+2xcp2 + 1x<1,1,1>", 64), strategy);
  EXPECT_EQ(readable(parse_strategy("11x<1,1,1>", 64)), "11x tp1");
}

TEST(Readable, TextKeepsWhatIsNoScheme) {
  EXPECT_EQ(readable_text("8x<1,1,2>, 4096 tokens a lane"), "8x cp2, 4096 tokens a lane");
  for (const char* text : {"", "a < b", "<b>", "<1,2", "1x", "<1,0,1>", "<1,1,3,2>"})
    EXPECT_EQ(readable_text(text), text);
  EXPECT_EQ(readable_text("a < b <2,1,1> > <c>"), "a < b tp2 > <c>");
}

TEST(Readable, FaultsNameTheDegree) {
  EXPECT_THAT(fault("dp2"), HasSubstr("'dp' is no degree: a scheme is written as tp2,pp2,cp8,fsdp8,ep4"));
  EXPECT_THAT(fault("tp2,tp4"), HasSubstr("tp stands there twice"));
  EXPECT_THAT(fault("tp"), HasSubstr("tp must be a positive integer"));
  EXPECT_THAT(fault("tp0"), HasSubstr("tp is 0: give 1 or more"));
  EXPECT_THAT(fault("tp2,"), HasSubstr("'' is no degree"));
  EXPECT_THAT(fault("cp4,fsdp3"), HasSubstr("does not divide"));
  EXPECT_THAT(fault("tp128"), HasSubstr("it uses 128 ranks but there are 64"));
  EXPECT_THAT(fault("2xtp2 pp2"), HasSubstr("expected '+'"));
}

}  // namespace
}  // namespace sluice::strategy
