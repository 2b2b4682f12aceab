#include "plan/batch_sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"

namespace sluice::plan {
namespace {

std::vector<int64_t> skewed_lengths(int count) {
  base::Rng rng(3);
  std::vector<int64_t> lengths;
  for (int i = 0; i < count; ++i) {
    lengths.push_back(rng.below(100) == 0 ? rng.between(5'000, 30'000) : rng.between(10, 900));
  }
  return lengths;
}

TEST(BatchSample, BatchesFillTheStepAndAscendByTheirLongest) {
  const std::vector<int64_t> lengths = skewed_lengths(5'000);
  const auto batches = stratified_batches(lengths, {.tokens_per_step = 50'000, .batches = 24});
  ASSERT_EQ(batches.size(), 24u);
  int64_t previous = 0;
  for (const std::vector<int64_t>& batch : batches) {
    const int64_t tokens = std::accumulate(batch.begin(), batch.end(), int64_t{0});
    EXPECT_LE(tokens, 50'000);
    EXPECT_GT(tokens, 20'000);
    const int64_t longest = *std::max_element(batch.begin(), batch.end());
    EXPECT_GE(longest, previous);
    previous = longest;
  }
}

TEST(BatchSample, FewBatchesHaveTheTokensAskedForAndAreNeverNone) {
  const std::vector<std::vector<int64_t>> batches(12, {60, 40});
  EXPECT_EQ(few_batches(batches, 1'300).size(), 12U);
  EXPECT_EQ(few_batches(batches, 400).size(), 3U);
  EXPECT_EQ(few_batches(batches, 1).size(), 1U);
  EXPECT_TRUE(few_batches({}, 1).empty());
}

TEST(BatchSample, SequenceLongerThanTheStepIsABatch) {
  const std::vector<int64_t> lengths = {70};
  const auto batches = stratified_batches(lengths, {.tokens_per_step = 50, .batches = 3});
  EXPECT_EQ(batches, std::vector<std::vector<int64_t>>(3, {70}));
}

TEST(BatchSample, FollowsTheSeed) {
  const std::vector<int64_t> lengths = skewed_lengths(1'000);
  const auto sample = [&](uint64_t seed) {
    return stratified_batches(lengths, {.tokens_per_step = 20'000, .batches = 8, .seed = seed});
  };
  EXPECT_EQ(sample(1), sample(1));
  EXPECT_NE(sample(1), sample(2));
}

// Means over few stratified batches differ less between seeds than means over as many random ones would.
TEST(BatchSample, StratifiedMeansHardlyDependOnTheSeed) {
  const std::vector<int64_t> lengths = skewed_lengths(20'000);
  int64_t least = INT64_MAX, most = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    int64_t sum = 0;
    for (const auto& batch :
         stratified_batches(lengths, {.tokens_per_step = 50'000, .batches = 48, .seed = seed})) {
      sum += *std::max_element(batch.begin(), batch.end());
    }
    least = std::min(least, sum);
    most = std::max(most, sum);
  }
  EXPECT_LT(most - least, most / 20);
}

// Long sequences cost as much in the sample, on average, as in training.
TEST(BatchSample, SumsOfSquaresAreThoseOfAllBatches) {
  const std::vector<int64_t> lengths = skewed_lengths(20'000);
  const auto mean_squares = [&](const BatchSampleOptions& options) {
    double sum = 0;
    for (const auto& batch : stratified_batches(lengths, options)) {
      for (const int64_t length : batch) sum += static_cast<double>(length) * static_cast<double>(length);
    }
    return sum / options.batches;
  };
  const double all = mean_squares({.tokens_per_step = 50'000, .batches = 4'000, .drawn_tokens_millions = 0});
  double sampled = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    sampled += mean_squares({.tokens_per_step = 50'000, .seed = seed}) / 10;
  }
  EXPECT_NEAR(sampled / all, 1.0, 0.01);
}

TEST(BatchSample, LargeBatchesAreComparedOnFewOfThem) {
  const std::vector<std::vector<int64_t>> batches(48, {700, 300});
  EXPECT_EQ(spread_within(batches, 1'000'000, 8), spread(48, 8)) << "all fit: evenly spread";
  EXPECT_EQ(spread_within(batches, 5'000, 8).size(), 5U);
  EXPECT_EQ(spread_within(batches, 5'000, 3).size(), 3U);
  EXPECT_EQ(spread_within(batches, 1, 8), std::vector<size_t>{24}) << "one at least";
  const std::vector<std::vector<int64_t>> few = few_batches(batches, 5'000);
  EXPECT_EQ(few.size(), spread_within(batches, 5'000, batches.size()).size());
  EXPECT_TRUE(spread_within({}, 5'000, 8).empty());
}

}  // namespace
}  // namespace sluice::plan
