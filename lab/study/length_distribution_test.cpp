#include "study/length_distribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace sluice::study {
namespace {

// Documents of `length` or more, and their tokens, as shares.
struct Above {
  double documents = 0;
  double tokens = 0;
};
Above above(const std::vector<int32_t>& lengths, int64_t length) {
  double documents = 0;
  double tokens = 0;
  double all = 0;
  for (const int32_t own : lengths) {
    all += own;
    if (own < length) continue;
    documents += 1;
    tokens += own;
  }
  return {documents / static_cast<double>(lengths.size()), tokens / all};
}

TEST(LengthDistribution, AscendsAndMeetsAtTheTail) {
  for (const char* name : {"commoncrawl", "github", "byted"}) {
    const LengthLaw law = length_law(name);
    const std::vector<int32_t> lengths = lengths_by(law, 5000);
    EXPECT_TRUE(std::ranges::is_sorted(lengths));
    EXPECT_NEAR(static_cast<double>(lengths[2500]), law.median, law.median * 0.01);
    EXPECT_LE(lengths.back(), law.longest);
  }
}

// Facts of data/published/corpora.csv.
TEST(LengthDistribution, GithubHasThePublishedTokensInLongFiles) {
  const std::vector<int32_t> lengths = lengths_by(length_law("github"), 200'000);
  EXPECT_NEAR(above(lengths, 131'072).tokens, 0.162, 0.01);
  EXPECT_NEAR(above(lengths, 262'144).tokens, 0.098, 0.01);
}

TEST(LengthDistribution, CommonCrawlHasThePublishedMeanAndLongest) {
  const std::vector<int32_t> lengths = lengths_by(length_law("commoncrawl"), 200'000);
  double tokens = 0;
  for (const int32_t length : lengths) tokens += std::min(length, 32'768);
  const double mean = tokens / static_cast<double>(lengths.size());
  EXPECT_GT(mean, 517);
  EXPECT_LT(mean, 672);
  // In 30 steps of 1.6M tokens the longest sequence is always above 15K and not always cut at 32K.
  const double steps = 1.6e6 / mean;
  EXPECT_GT(steps * above(lengths, 15'000).documents, 3);
  EXPECT_LT(std::exp(-steps * above(lengths, 32'767).documents), 0.7);
  EXPECT_GT(std::exp(-steps * above(lengths, 32'767).documents), 0.1);
}

TEST(LengthDistribution, BytedHasThePublishedLongTail) {
  const std::vector<int32_t> lengths = lengths_by(length_law("byted"), 200'000);
  EXPECT_NEAR(above(lengths, 4097).documents, 0.20, 0.001);
  EXPECT_NEAR(above(lengths, 131'072).documents, 0.01, 0.0001);
  EXPECT_NEAR(above(lengths, 131'072).tokens, 0.443, 0.005);
  EXPECT_NEAR(above(lengths, 262'144).tokens, 0.37, 0.005);
  EXPECT_NEAR(above(lengths, 2'097'152).documents, 0.0005, 0.00001);
  EXPECT_NEAR(above(lengths, 2'097'152).tokens, 0.121, 0.002);
}

TEST(LengthDistribution, UnknownNameListsTheKnown) { EXPECT_THROW(length_law("gihtub"), base::InputError); }

}  // namespace
}  // namespace sluice::study
