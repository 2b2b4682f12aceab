// Vocabularies that are padded to other multiples than a model's files.
#include "checkpoint/vocabulary_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "model/test_outline.h"

namespace sluice::checkpoint {
namespace {

model::ParameterTable table_of(int64_t vocab, bool tied) {
  model::Outline outline = model::test_outline(2);
  outline.vocab = vocab;
  outline.tie_embeddings = tied;
  return model::parameter_table(outline);
}

// Tells every element of every bucket apart; none is 0.
float value_at(int bucket, int64_t element) { return static_cast<float>(bucket * 1'000'000 + element + 1); }

ParameterSource numbers() {
  return [](int bucket, base::Interval interval, float* values) {
    for (int64_t i = interval.begin; i < interval.end; ++i) values[i - interval.begin] = value_at(bucket, i);
  };
}

// By parameters and elements, from a source that gives parts of `part` elements.
void expect_rows_of_both(const model::ParameterTable& wanted, const model::ParameterTable& files,
                         int64_t part) {
  const BucketSource source = with_vocabulary(files, numbers());
  for (const model::Bucket& bucket : wanted.buckets) {
    std::vector<float> values(static_cast<size_t>(bucket.size), -1.0F);
    for (int64_t begin = 0; begin < bucket.size; begin += part)
      source(bucket, {begin, std::min(bucket.size, begin + part)}, values.data() + begin);
    const model::Bucket& other = files.buckets[static_cast<size_t>(bucket.index)];
    for (size_t p = 0; p < bucket.parameters.size(); ++p) {
      const model::Parameter& own = bucket.parameters[p];
      const int64_t known = std::min(own.size(), other.parameters[p].size());
      for (int64_t i = 0; i < own.size(); ++i) {
        const float expected = i < known ? value_at(bucket.index, other.parameters[p].offset + i) : 0.0F;
        ASSERT_EQ(values[static_cast<size_t>(own.offset + i)], expected) << own.name << " element " << i;
      }
    }
  }
}

TEST(VocabularyRows, FewerRowsAreTheFirst) {
  for (const bool tied : {false, true}) expect_rows_of_both(table_of(64, tied), table_of(70, tied), 37);
}

TEST(VocabularyRows, FurtherRowsAreZero) {
  for (const bool tied : {false, true}) expect_rows_of_both(table_of(70, tied), table_of(64, tied), 41);
}

TEST(VocabularyRows, TheSameRowsAreAsTheyAre) {
  expect_rows_of_both(table_of(64, false), table_of(64, false), 1'000'000);
}

}  // namespace
}  // namespace sluice::checkpoint
