#include "ops/sequence_groups.h"

#include <gmock/gmock.h>

#include <cstring>
#include <utility>
#include <vector>

namespace sluice::ops {
namespace {

using testing::ElementsAre;

TEST(SequenceGroups, ElevenSequencesAreTwiceFourAndThriceOne) {
  const std::vector<int64_t> begins{0, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 66};  // lengths 1, 2, … 11
  const SequenceTable table = sequence_table(begins);
  ASSERT_EQ(table.groups.size(), 5);
  std::vector<int64_t> counts, longest;
  std::vector<int32_t> lengths;
  for (const SequenceGroup& group : table.groups) {
    counts.push_back(group.count);
    longest.push_back(group.longest);
    EXPECT_EQ(group.begins_at % 2, 0);
    EXPECT_EQ(group.lengths_at % 4, 0);
    for (int64_t i = 0; i <= group.count; ++i) {
      EXPECT_EQ(table.words[static_cast<size_t>(group.begins_at + i)],
                begins[static_cast<size_t>(group.first + i)]);
    }
    std::vector<int32_t> of_group(static_cast<size_t>(group.count));
    std::memcpy(of_group.data(),
                reinterpret_cast<const std::byte*>(table.words.data() + table.begins) + 4 * group.lengths_at,
                of_group.size() * 4);
    lengths.insert(lengths.end(), of_group.begin(), of_group.end());
  }
  EXPECT_EQ(table.begins % 2, 0);
  EXPECT_THAT(counts, ElementsAre(4, 4, 1, 1, 1));
  EXPECT_THAT(longest, ElementsAre(4, 8, 9, 10, 11));
  EXPECT_THAT(lengths, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

TEST(SequenceGroups, OneSequenceIsAGroup) {
  const SequenceTable table = sequence_table({0, 7});
  ASSERT_EQ(table.groups.size(), 1);
  EXPECT_EQ(table.groups.front().count, 1);
  EXPECT_THAT(table.words, ElementsAre(0, 7, 7, 0));
}

// Four lists of begins and two of lengths; blocks may share rows and come in any order.
TEST(SequenceGroups, BlocksHaveRowsOfQueriesAndKeysAndResultsOneBehindTheOther) {
  const SequenceTable table = block_table({{40, 50}, {0, 4}}, {{3, 8}, {100, 130}});
  ASSERT_EQ(table.groups.size(), 2);
  EXPECT_EQ(table.groups[0].longest, 10);
  EXPECT_EQ(table.groups[0].longest_keys, 5);
  EXPECT_EQ(table.groups[1].longest, 4);
  EXPECT_EQ(table.groups[1].longest_keys, 30);
  const auto begins = [&](RowsOf rows) {
    std::vector<std::pair<int64_t, int64_t>> found;
    for (const SequenceGroup& group : table.groups) {
      const auto at = static_cast<size_t>(table.begins_of(rows) + group.begins_at);
      found.emplace_back(table.words[at], table.words[at + 1]);
    }
    return found;
  };
  EXPECT_THAT(begins(RowsOf::kQueries), ElementsAre(std::pair(40, 50), std::pair(0, 4)));
  EXPECT_THAT(begins(RowsOf::kKeys), ElementsAre(std::pair(3, 8), std::pair(100, 130)));
  EXPECT_THAT(begins(RowsOf::kQueryResults), ElementsAre(std::pair(0, 10), std::pair(10, 14)));
  EXPECT_THAT(begins(RowsOf::kKeyResults), ElementsAre(std::pair(0, 5), std::pair(5, 35)));
  const auto length = [&](RowsOf rows, size_t group) {
    int32_t found = 0;
    std::memcpy(&found,
                reinterpret_cast<const std::byte*>(table.words.data()) +
                    4 * (table.lengths_of(rows) + table.groups[group].lengths_at),
                sizeof found);
    return found;
  };
  EXPECT_EQ(length(RowsOf::kQueries, 0), 10);
  EXPECT_EQ(length(RowsOf::kKeys, 0), 5);
  EXPECT_EQ(length(RowsOf::kQueries, 1), 4);
  EXPECT_EQ(length(RowsOf::kKeys, 1), 30);
}

// More sequences than a plan has are several groups.
TEST(SequenceGroups, AThousandSequencesAreGroupsOfAtMost64) {
  std::vector<int64_t> begins(1001);
  for (size_t i = 0; i < begins.size(); ++i) begins[i] = static_cast<int64_t>(i);
  int64_t sequences = 0;
  for (const SequenceGroup& group : sequence_table(begins).groups) {
    EXPECT_EQ(group.first, sequences);
    EXPECT_LE(group.count, kMostGrouped);
    sequences += group.count;
  }
  EXPECT_EQ(sequences, 1000);
}

}  // namespace
}  // namespace sluice::ops
