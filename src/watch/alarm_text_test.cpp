// Alarms as text: the rank, what it does to the others, what its machine shows, and where to look.
#include "watch/alarm_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace sluice::watch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Alarm alarm_of(Cause cause, double score = 1.5) {
  return {.rank = 1, .cause = cause, .since = 9, .score = score};
}
std::string begun(Cause cause, const Figures& figures = {}, const Cost& cost = {}) {
  return to_text({.alarm = alarm_of(cause), .begins = true}, figures, cost);
}

// Four ranks, of which the second has another value.
Figures with(Figure figure, double usual, double own) {
  Figures figures;
  figures[figure] = {usual, own, usual, usual};
  return figures;
}

TEST(AlarmText, EachCauseSaysWhatTheOthersSufferAndWhereToLook) {
  EXPECT_THAT(begun(Cause::kSlowdown),
              AllOf(HasSubstr("rank 1 is slow: for what it computes it has taken 1.50 times as long"),
                    HasSubstr("over 8 steps, which wait for it, since step 10"),
                    HasSubstr(": look at its machine's other load, clocks and temperature")));
  EXPECT_THAT(begun(Cause::kCopies),
              AllOf(HasSubstr("rank 1 copies slowly"), HasSubstr("look at its PCIe link")));
  EXPECT_THAT(begun(Cause::kHost),
              AllOf(HasSubstr("holds steps up outside their nodes"), HasSubstr("50.00 % of a step more"),
                    HasSubstr("look at its disks")));
  EXPECT_THAT(begun(Cause::kLink), AllOf(HasSubstr("has a slow link"), HasSubstr("50.00 % of a step more"),
                                         HasSubstr("look at its network adapter")));
}

TEST(AlarmText, AnEndIsSaidWithoutAdvice) {
  for (const Cause cause : {Cause::kSlowdown, Cause::kCopies, Cause::kHost, Cause::kLink}) {
    const std::string told = to_text({.alarm = alarm_of(cause, 1.02), .begins = false}, {});
    EXPECT_THAT(told, AllOf(testing::StartsWith("rank 1 "), Not(HasSubstr("look at")))) << name_of(cause);
  }
  EXPECT_THAT(to_text({.alarm = alarm_of(Cause::kSlowdown, 1.02), .begins = false}, {}),
              HasSubstr("its slowdown is 1.02"));
}

TEST(AlarmText, ItsCostIsToldIfItIsKnown) {
  EXPECT_THAT(begun(Cause::kSlowdown, {}, {.step_ns = 3'000'000'000, .without_ns = 2'000'000'000}),
              HasSubstr("steps like this one take 3.00 s by their plan, 2.00 s were it like the others"));
  EXPECT_THAT(begun(Cause::kSlowdown), Not(HasSubstr("by their plan")));
}

TEST(AlarmText, FiguresThatDifferFromTheOthersAreEvidence) {
  EXPECT_EQ(evidence(with(Figure::kGpuTemperature, 71, 88), 1),
            "its GPU's temperature is 88.00, the others' 71.00");
  EXPECT_THAT(begun(Cause::kSlowdown, with(Figure::kGpuTemperature, 71, 88)),
              HasSubstr("; its GPU's temperature is 88.00"));
  EXPECT_EQ(evidence(with(Figure::kGpuTemperature, 71, 78), 1), "") << "within what is usual";
  EXPECT_EQ(evidence(with(Figure::kGpuTemperature, 71, 60), 1), "") << "cooler is no fault";
  EXPECT_EQ(evidence(with(Figure::kGpuTemperature, 71, 88), 0), "") << "the other ranks have none";
}

// Some figures are suspicious when they are high, others when they are low.
TEST(AlarmText, EachFigureHasItsDirectionAndItsMargin) {
  EXPECT_THAT(evidence(with(Figure::kGpuClock, 1900, 1400), 1), HasSubstr("clock in MHz is 1400.00"));
  EXPECT_EQ(evidence(with(Figure::kGpuClock, 1900, 2100), 1), "");
  EXPECT_THAT(evidence(with(Figure::kProcessors, 8, 4), 1),
              HasSubstr("processors that its process kept busy are 4.00"));
  EXPECT_THAT(evidence(with(Figure::kGpuPcieLanes, 16, 8), 1), HasSubstr("PCIe lanes in use are 8.00"));
  EXPECT_THAT(evidence(with(Figure::kGpuEccErrors, 0, 1), 1),
              HasSubstr("uncorrected memory errors are 1.00"));
  EXPECT_EQ(evidence(with(Figure::kDisk, 0, 1e6), 1), "") << "a megabyte slows nobody";
  EXPECT_THAT(evidence(with(Figure::kDisk, 0, 1e9), 1), HasSubstr("to and from disks"));
  EXPECT_THAT(evidence(with(Figure::kRunDelay, 1, 500), 1),
              HasSubstr("ready without a processor are 500.00"));
}

TEST(AlarmText, SeveralFiguresAreListedAndUnknownOnesLeftOut) {
  Figures figures = with(Figure::kGpuTemperature, 71, 88);
  figures[Figure::kGpuClock] = {1900, 1400, 1900, 1900};
  figures[Figure::kGpuPcieLanes] = {16, kNotKnown, 16, 16};
  const std::string told = evidence(figures, 1);
  EXPECT_THAT(
      told, AllOf(HasSubstr("1400.00, the others' 1900.00; its GPU's temperature"), Not(HasSubstr("PCIe"))));
  EXPECT_EQ(evidence(figures, 7), "") << "a rank that told nothing";
}

}  // namespace
}  // namespace sluice::watch
