#include "session/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice::session {
namespace {

const std::vector<int32_t> kFirst = {1, 2, 64, 65, 66, 128, 129, 200, 3, 0, 40};
const std::vector<int32_t> kSecond = {500, 63, 7, 12, 64, 9, 90, 33};

std::vector<corpus::Sample> sampled(const corpus::SamplerOptions& options) {
  std::vector<corpus::Sample> samples;
  for (const corpus::Batch& batch : corpus::batches_in_order({{kFirst}, {kSecond}}, options)) {
    samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
  }
  return samples;
}

TEST(Sampling, SequencesAreThoseThatTheSamplerDraws) {
  for (const auto overflow :
       {corpus::Overflow::kTruncate, corpus::Overflow::kSplit, corpus::Overflow::kDrop}) {
    for (const auto subset : {corpus::Subset::kTraining, corpus::Subset::kValidation}) {
      const corpus::SamplerOptions options{
          .context_length = 64, .overflow = overflow, .validation_ppm = 300'000, .subset = subset};
      const std::vector<corpus::Sample> samples = sampled(options);
      ASSERT_FALSE(samples.empty());
      std::vector<int64_t> lengths;
      for (const corpus::Sample& sample : samples) lengths.push_back(sample.length_tokens);
      EXPECT_EQ(sequence_lengths({{kFirst}, {kSecond}}, options), lengths);
      EXPECT_EQ(longest_sequence({{kFirst}, {kSecond}}, options),
                *std::ranges::max_element(samples, {}, &corpus::Sample::length_tokens));
    }
  }
}

TEST(Sampling, DroppedDocumentsAreNotTheLongest) {
  const corpus::SamplerOptions options{.context_length = 45, .overflow = corpus::Overflow::kDrop};
  EXPECT_EQ(longest_sequence({{kFirst}}, options), (corpus::Sample{10, 0, 40}));
}

TEST(Sampling, NoSequenceIsNoLongest) {
  const std::vector<int32_t> short_documents = {0, 1, 1};
  EXPECT_EQ(longest_sequence({{short_documents}}, {}), std::nullopt);
}

}  // namespace
}  // namespace sluice::session
