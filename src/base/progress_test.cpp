#include "base/progress.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace sluice::base {
namespace {

TEST(Progress, BarShowsShareAndTimeLeft) {
  EXPECT_EQ(progress_bar("encode", 25, 100, 10'000'000'000),
            "encode  25% [======                  ] 0:30 left");
  EXPECT_EQ(progress_bar("encode", 0, 100, 5), "encode   0% [                        ]");
  EXPECT_EQ(progress_bar("encode", 7, 0, 5), "encode 100% [========================] 0:00 left");
}

TEST(Progress, LineEndsWithTheWholeTime) {
  EXPECT_EQ(progress_line("encode", 1, 4, 1'000'000'000), "encode: 25 % after 1.00 s, 3.00 s left");
  EXPECT_EQ(progress_line("encode", 4, 4, 1'000'000'000), "encode: done in 1.00 s");
}

TEST(Progress, TimeLeftOfHugeTotalsIsACenturyAtMost) {
  constexpr int64_t kHour = 3'600'000'000'000;
  EXPECT_EQ(left_ns(100'000, 1'000'000, 26 * kHour), 234 * kHour);
  EXPECT_EQ(left_ns(1, int64_t{1} << 62, 10'000'000'000), 876'600 * kHour);
  EXPECT_EQ(progress_line("plan", 1, int64_t{1} << 62, 1'000'000'000),
            "plan: 0 % after 1.00 s, 876600h00m left");
}

TEST(Progress, PrintsEveryIntervalAndOnceAtTheEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    Progress progress("work", 3,
                      {.descriptor = ends[1], .style = ProgressStyle::kLines, .line_interval_ns = 0});
    progress.advance(1);
    progress.set(2);
    progress.set(3);
    progress.finish();
    progress.finish();
  }
  ::close(ends[1]);
  std::string printed(4096, '\0');
  printed.resize(static_cast<size_t>(::read(ends[0], printed.data(), printed.size())));
  ::close(ends[0]);
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 3);
  EXPECT_EQ(printed.find("work: done"), printed.rfind("work: done")) << "the end is told once";
  EXPECT_NE(printed.find("work: 33 % after"), std::string::npos);
  EXPECT_NE(printed.find("work: done in"), std::string::npos);
}

}  // namespace
}  // namespace sluice::base
