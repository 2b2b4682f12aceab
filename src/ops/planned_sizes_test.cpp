#include "ops/planned_sizes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace sluice::ops {
namespace {

TEST(PlannedSizes, LengthsAndRowsAreRoundedUp) {
  EXPECT_EQ(planned_length(1), 512);
  EXPECT_EQ(planned_length(512), 512);
  EXPECT_EQ(planned_length(513), 2048);
  EXPECT_EQ(planned_length(32'769), 131'072);
  EXPECT_EQ(planned_rows(5), 4096);
  EXPECT_EQ(planned_rows(16'384), 16'384);
  EXPECT_EQ(planned_rows(16'385), 32'768);
}

TEST(PlannedSizes, QueriesAndKeysHaveTheLargerSize) {
  const SequenceGroup group{.count = 4, .longest = 600, .longest_keys = 9000};
  EXPECT_EQ(planned_sizes(PlannedFor::kForward, group, 10'000, 70'000),
            (PlannedSizes{4, 32'768, 32'768, 0, 0}));
  EXPECT_EQ(planned_sizes(PlannedFor::kBackward, group, 10'000, 70'000),
            (PlannedSizes{4, 32'768, 32'768, 131'072, 131'072}));
}

TEST(PlannedSizes, AreThoseOfGroupsThatFit) {
  // Sixteen sequences with one of more than 512 tokens have more than 520 rows.
  const auto sizes = all_planned_sizes(PlannedFor::kForward, {.rows = 520, .longest = 520});
  const std::set<PlannedSizes> found(sizes.begin(), sizes.end());
  EXPECT_EQ(found.size(), sizes.size());
  EXPECT_TRUE(found.contains({64, 512, 512, 0, 0}));
  EXPECT_TRUE(found.contains({4, 2048, 2048, 0, 0}));
  EXPECT_FALSE(found.contains({16, 2048, 2048, 0, 0}));
  EXPECT_EQ(all_planned_sizes(PlannedFor::kBackward, {.rows = 1, .longest = 1}).size(), 1);
}

TEST(PlannedSizes, OfPagesHaveAPlanForSingleQueries) {
  EXPECT_EQ(planned_page_sizes({.count = 16, .longest = 1, .longest_keys = 700}),
            (PlannedSizes{16, 1, 2048, 0, 0}));
  EXPECT_EQ(planned_page_sizes({.count = 4, .longest = 33, .longest_keys = 700}),
            (PlannedSizes{4, 512, 2048, 0, 0}));
  const auto sizes = all_planned_page_sizes({.rows = 700, .longest = 700});
  const std::set<PlannedSizes> found(sizes.begin(), sizes.end());
  for (const int64_t keys : {1, 512, 513, 700}) {
    for (const int64_t queries : {int64_t{1}, int64_t{2}, keys}) {
      if (queries > keys) continue;
      EXPECT_TRUE(found.contains(planned_page_sizes({.count = 64, .longest = queries, .longest_keys = keys})))
          << queries << " of " << keys;
    }
  }
  EXPECT_EQ(found.size(), sizes.size());
  EXPECT_EQ(found.size(), 4 * (2 + 3));
}

// Micro-batches of random documents, cut at `longest`, that fill at most `rows`.
std::vector<std::vector<int64_t>> random_begins(const std::string& lengths_file, const RowLimits& limits,
                                                int micro_batches) {
  std::ifstream file(std::filesystem::path(SLUICE_SOURCE_DIR) / "bench/data" / lengths_file);
  const std::vector<int64_t> lengths{std::istream_iterator<int64_t>(file), {}};
  EXPECT_FALSE(lengths.empty()) << lengths_file;
  std::mt19937_64 random(7);
  std::vector<std::vector<int64_t>> all;
  for (int i = 0; i < micro_batches; ++i) {
    const int64_t room = limits.rows >> random() % 3;
    std::vector<int64_t> begins{0};
    while (true) {
      const int64_t next =
          std::clamp<int64_t>(lengths[random() % lengths.size()], 1, std::min(room, limits.longest));
      if (begins.back() + next > room) break;
      begins.push_back(begins.back() + next);
    }
    if (begins.size() > 1) all.push_back(begins);
  }
  return all;
}

class SizesOfALengthsFile : public testing::TestWithParam<const char*> {};

// Two hundred steps of eight ranks and four micro-batches: nothing is planned after the first.
TEST_P(SizesOfALengthsFile, AllAreMadeBeforeTheFirstStep) {
  for (const RowLimits& limits :
       {RowLimits{16'384, 16'384}, RowLimits{65'536, 32'768}, RowLimits{50'000, 9000}}) {
    for (const PlannedFor direction : {PlannedFor::kForward, PlannedFor::kBackward}) {
      const auto made = all_planned_sizes(direction, limits);
      EXPECT_LE(made.size(), 80);
      const std::set<PlannedSizes> ahead(made.begin(), made.end());
      for (const std::vector<int64_t>& begins : random_begins(GetParam(), limits, 200 * 8 * 4)) {
        for (const SequenceGroup& group : sequence_table(begins).groups)
          ASSERT_TRUE(ahead.contains(planned_sizes(direction, group, begins.back(), begins.back())));
      }
    }
  }
}

// Blocks of a ring's step: queries and keys of other sequences' parts.
TEST_P(SizesOfALengthsFile, ServeBlocks) {
  const RowLimits limits{16'384, 16'384};
  const auto made = all_planned_sizes(PlannedFor::kBackward, limits);
  const std::set<PlannedSizes> ahead(made.begin(), made.end());
  for (const std::vector<int64_t>& begins : random_begins(GetParam(), limits, 2000)) {
    std::vector<base::Interval> queries, keys;
    for (size_t i = 1; i < begins.size(); ++i) {
      const int64_t middle = (begins[i - 1] + begins[i]) / 2;
      if (middle == begins[i - 1]) continue;
      queries.push_back({middle, begins[i]});
      keys.push_back({begins[i - 1], middle});
    }
    for (const SequenceGroup& group : block_table(queries, keys).groups)
      ASSERT_TRUE(ahead.contains(planned_sizes(PlannedFor::kBackward, group, begins.back(), begins.back())));
  }
}

INSTANTIATE_TEST_SUITE_P(Files, SizesOfALengthsFile,
                         testing::Values("wikipedia_lengths.txt", "code_lengths.txt", "system_lengths.txt"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(0, name.find('_'));
                         });

}  // namespace
}  // namespace sluice::ops
