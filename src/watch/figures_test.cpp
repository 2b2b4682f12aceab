#include "watch/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

namespace sluice::watch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::IsNan;

std::vector<Sample> samples_of(Figure figure, const std::vector<int64_t>& values) {
  std::vector<Sample> samples(values.size());
  for (size_t rank = 0; rank < values.size(); ++rank) samples[rank][figure] = values[rank];
  return samples;
}

TEST(Figures, PacesAreRelativeToTheMedianOfWhatIsKnown) {
  const auto paces = [](const std::vector<int64_t>& ppm) {
    return Figures(samples_of(Figure::kSlowdown, ppm))[Figure::kSlowdown];
  };
  EXPECT_THAT(paces({1'000'000, 0, 2'000'000, 1'000'000}), ElementsAre(1, IsNan(), 2, 1));
  EXPECT_THAT(paces({3'000, 2'000}), ElementsAre(1.5, 1));
  EXPECT_THAT(paces({0, 5, -1}), IsEmpty()) << "nobody to compare with";
}

TEST(Figures, AreShownInMillisecondsAndShares) {
  EXPECT_THAT(Figures(samples_of(Figure::kPullWait, {2'500'000, 0}))[Figure::kPullWait], ElementsAre(2.5, 0));
  EXPECT_THAT(Figures(samples_of(Figure::kProcessors, {500'000, -1}))[Figure::kProcessors],
              ElementsAre(0.5, IsNan()));
  EXPECT_THAT(Figures(samples_of(Figure::kMajorFaults, {7, 8}))[Figure::kMajorFaults], ElementsAre(7, 8));
}

TEST(Figures, HaveEachAKeyOfTheirOwn) {
  std::set<std::string> keys;
  for (const Figure figure : all_figures()) keys.insert(traits(figure).key);
  EXPECT_EQ(keys.size(), kFigures);
}

}  // namespace
}  // namespace sluice::watch
