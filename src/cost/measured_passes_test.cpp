#include "cost/measured_passes.h"

#include <gtest/gtest.h>

#include "cost/shipped.h"
#include "model/outline.h"

namespace sluice::cost {
namespace {

TEST(MeasuredPasses, GrowWithTheModel) {
  model::Outline outline = shipped("a800-32b").options.model.outline();
  const int64_t large_ns = measured_pass_ns(outline);
  EXPECT_NEAR(static_cast<double>(large_ns), 2.8e9, 0.2e9);
  outline.layers /= 2;
  EXPECT_LT(measured_pass_ns(outline), large_ns);
}

TEST(MeasuredPasses, AreOfShareGroupsOnSeveralNodes) {
  const strategy::Topology topology = 8;
  const auto gathers = [&](const char* text) {
    return gathers_between_nodes(strategy::parse_strategy(text, 16), topology);
  };
  EXPECT_TRUE(gathers("1x<1,1,16,16>"));
  EXPECT_TRUE(gathers("1x<2,1,8,8>"));
  EXPECT_FALSE(gathers("1x<1,1,16,8>"));
  EXPECT_FALSE(gathers("1x<1,1,16>"));
}

}  // namespace
}  // namespace sluice::cost
