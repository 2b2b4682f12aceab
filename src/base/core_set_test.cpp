#include "base/core_set.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <vector>

namespace sluice::base {
namespace {

CoreSet cores(uint64_t first, uint64_t second = 0, double processors = 0) {
  return {.ids = {first, second}, .processors = processors};
}

TEST(CoreSet, ProcessesBoundToCoresOfTheirOwnShareNone) {
  EXPECT_EQ(cores_together(std::vector{cores(0b01), cores(0b10)}), 2);
  EXPECT_EQ(cores_together(std::vector{cores(0b11), cores(0b11)}), 2);
  EXPECT_EQ(cores_together(std::vector{cores(0b01), cores(0b01)}), 1);
  EXPECT_EQ(cores_together(std::vector{cores(1), cores(0, 1)}), 2) << "cores 0 and 64";
}

TEST(CoreSet, ALimitHoldsWhereEveryProcessHasOne) {
  EXPECT_EQ(cores_together(std::vector{cores(0xff, 0, 2.5), cores(0xff, 0, 2.5)}), 2);
  EXPECT_EQ(cores_together(std::vector{cores(0b01, 0, 0.5), cores(0b10)}), 2) << "one process is throttled";
  EXPECT_EQ(cores_together(std::vector{cores(0b11, 0, 0.5)}), 1) << "at least one";
}

TEST(CoreSet, OwnCoresAreTheAllowedOnes) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(cores_together(std::vector{own_cores()}), 1);
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace sluice::base
