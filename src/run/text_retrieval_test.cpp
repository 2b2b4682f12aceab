#include "run/text_retrieval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"

namespace sluice::run {
namespace {

struct MadeUpTexts {
  std::vector<TextNumbers> numbers;
  std::vector<base::WideHash> hashes;
  void add(const TextNumbers& own, int32_t token) {
    numbers.push_back(own);
    hashes.push_back(text_hash({&token, 1}));
  }
};

double cosine(const TextNumbers& a, const TextNumbers& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

TextNumbers random_row(base::Rng& rng, const TextNumbers& near = {}) {
  TextNumbers row(6);
  for (size_t i = 0; i < row.size(); ++i)
    row[i] = static_cast<double>(rng.below(2000)) / 1000 - 1 + (near.empty() ? 0 : near[i]);
  return row;
}

TEST(Retrieval, IsWhatRanksOneByOneGive) {
  base::Rng rng(3);
  for (const int64_t of_group : {2, 3}) {
    constexpr int64_t kGroups = 600;  // more than one block of queries
    MadeUpTexts texts;
    for (int64_t group = 0; group < kGroups; ++group) {
      const TextNumbers query = random_row(rng);
      texts.add(query, -1);
      for (int64_t place = 1; place < of_group; ++place)
        texts.add(random_row(rng, place == 1 ? query : TextNumbers()),
                  static_cast<int32_t>(group * 4 + place));
    }
    double first = 0, tenth = 0, reciprocal = 0, gain = 0;
    for (int64_t group = 0; group < kGroups; ++group) {
      const auto& query = texts.numbers[static_cast<size_t>(group * of_group)];
      const double own = cosine(query, texts.numbers[static_cast<size_t>(group * of_group + 1)]);
      int64_t rank = 1;
      for (size_t i = 0; i < texts.numbers.size(); ++i)
        rank += static_cast<int64_t>(i) % of_group != 0 && cosine(query, texts.numbers[i]) > own ? 1 : 0;
      if (rank > 10) continue;
      first += rank == 1 ? 1.0 / kGroups : 0;
      tenth += 1.0 / kGroups;
      reciprocal += 1.0 / static_cast<double>(rank) / kGroups;
      gain += 1 / std::log2(1.0 + static_cast<double>(rank)) / kGroups;
    }
    const RetrievalScores found = retrieval_scores(texts.numbers, texts.hashes, of_group);
    EXPECT_EQ(found.queries, kGroups);
    EXPECT_EQ(found.documents, kGroups * (of_group - 1));
    EXPECT_NEAR(found.recall_at_1, first, 1e-12);
    EXPECT_NEAR(found.recall_at_10, tenth, 1e-12);
    EXPECT_NEAR(found.mrr_at_10, reciprocal, 1e-12);
    EXPECT_NEAR(found.ndcg_at_10, gain, 1e-12);
    EXPECT_GT(found.recall_at_10, found.recall_at_1);
  }
}

TEST(Retrieval, ATextThatOccursTwiceIsOneDocument) {
  MadeUpTexts texts;
  for (int32_t group = 0; group < 4; ++group) {
    const double x = group / 2, y = 1 - x;  // two queries for each
    texts.add({x, y}, 100 + group);
    texts.add({x, y}, group / 2);
  }
  const RetrievalScores found = retrieval_scores(texts.numbers, texts.hashes, 2);
  EXPECT_EQ(found.documents, 2);
  EXPECT_EQ(found.recall_at_1, 1);
}

// All documents lie at one place, or at zero: the first one must not count as found.
TEST(Retrieval, AModelWhoseTextsAreAllAlikeFindsNone) {
  for (const double everywhere : {0.5, 0.0}) {
    MadeUpTexts texts;
    for (int32_t text = 0; text < 60; ++text) texts.add({everywhere, everywhere}, text);
    const RetrievalScores found = retrieval_scores(texts.numbers, texts.hashes, 2);
    EXPECT_EQ(found.recall_at_10, 0);
    EXPECT_EQ(found.mrr_at_10, 0);
  }
}

TEST(Retrieval, OneQueryAmongOneDocument) {
  MadeUpTexts texts;
  texts.add({1, 0}, 1);
  texts.add({0, 1}, 2);
  EXPECT_EQ(retrieval_scores(texts.numbers, texts.hashes, 2).ndcg_at_10, 1);
}

}  // namespace
}  // namespace sluice::run
