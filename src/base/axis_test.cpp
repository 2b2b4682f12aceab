#include "base/axis.h"

#include <gmock/gmock.h>

#include <cmath>

namespace sluice::base {
namespace {

using ::testing::HasSubstr;

std::string ticks_of(const Axis& axis) {
  std::string all;
  for (const double tick : axis.ticks) all += (all.empty() ? "" : " ") + tick_text(axis, tick);
  return all;
}

TEST(Axis, EndsAtRoundTicksAroundItsValues) {
  EXPECT_EQ(ticks_of(round_axis(0, 47, 5)), "0 10 20 30 40 50");
  EXPECT_EQ(ticks_of(round_axis(-3, 9, 5)), "-5.0 -2.5 0 2.5 5.0 7.5 10.0");
  EXPECT_EQ(ticks_of(round_axis(1.23, 1.28, 5)), "1.23 1.24 1.25 1.26 1.27 1.28");
  EXPECT_EQ(ticks_of(round_axis(0, 2e9, 2)), "0 1000000000 2000000000");
}

TEST(Axis, HasARangeWhereAllValuesAreEqual) {
  for (const double value : {0.0, 7.0, -7.0, 1e-9}) {
    const Axis axis = round_axis(value, value, 5);
    EXPECT_LE(axis.low, value);
    EXPECT_GT(axis.high, axis.low);
    EXPECT_TRUE(std::isfinite(axis.share(value)));
  }
}

TEST(Axis, GridHasALineAndALabelForEachTick) {
  Markup out;
  draw_grid(out, round_axis(0, 20, 2), 100, " %");
  EXPECT_THAT(out.bytes(), HasSubstr("y1=\"100\" y2=\"100\""));
  EXPECT_THAT(out.bytes(), HasSubstr("y=\"54\">10 %<"));
  EXPECT_THAT(out.bytes(), HasSubstr("y=\"4\">20 %<"));
}

}  // namespace
}  // namespace sluice::base
