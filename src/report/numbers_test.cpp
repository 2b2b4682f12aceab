#include "report/numbers.h"

#include <gtest/gtest.h>

namespace sluice::report {
namespace {

// A space that does not wrap stands before every unit.
std::string plain(std::string value) {
  for (size_t at = value.find("\u00a0"); at != value.npos; at = value.find("\u00a0"))
    value.replace(at, 2, " ");
  return value;
}

TEST(Numbers, DurationsHaveThreeDigitsAndAUnit) {
  EXPECT_EQ(plain(shown_duration(0)), "0 s");
  EXPECT_EQ(plain(shown_duration(750)), "750 ns");
  EXPECT_EQ(plain(shown_duration(12'345)), "12.3 µs");
  EXPECT_EQ(plain(shown_duration(842'400'000)), "842 ms");
  EXPECT_EQ(plain(shown_duration(999'700'000)), "1.00 s");
  EXPECT_EQ(plain(shown_duration(3'104'000'000)), "3.10 s");
  EXPECT_EQ(plain(shown_duration(99'990'000'000)), "1 min 40 s");
  EXPECT_EQ(plain(shown_duration(7'265'000'000'000)), "2 h 01 min");
}

TEST(Numbers, PercentagesKeepWhatIsSmall) {
  EXPECT_EQ(plain(shown_percent(0)), "0 %");
  EXPECT_EQ(plain(shown_percent(0.0004)), "0.04 %");
  EXPECT_EQ(plain(shown_percent(0.1234)), "12.3 %");
  EXPECT_EQ(plain(shown_percent(1)), "100 %");
}

TEST(Numbers, BytesAndRatiosAndCounts) {
  EXPECT_EQ(plain(shown_bytes(512)), "512 B");
  EXPECT_EQ(plain(shown_bytes(65'700'000'000)), "61.2 GiB");
  EXPECT_EQ(shown_ratio(1.8), "1.80×");
  EXPECT_EQ(shown_ratio(111.4), "111×");
  EXPECT_EQ(plain(counted(1, "step")), "1 step");
  EXPECT_EQ(plain(counted(1200, "step")), "1,200 steps");
}

}  // namespace
}  // namespace sluice::report
