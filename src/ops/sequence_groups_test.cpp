#include "ops/sequence_groups.h"

#include <gmock/gmock.h>

#include <cstring>

namespace sluice::ops {
namespace {

using testing::ElementsAre;

TEST(SequenceGroups, ElevenSequencesAreEightAndTwoAndOne) {
  const std::vector<int64_t> begins{0, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 66};  // lengths 1, 2, … 11
  const SequenceTable table = sequence_table(begins);
  ASSERT_EQ(table.groups.size(), 3);
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
  EXPECT_THAT(counts, ElementsAre(8, 2, 1));
  EXPECT_THAT(longest, ElementsAre(8, 10, 11));
  EXPECT_THAT(lengths, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

TEST(SequenceGroups, OneSequenceIsAGroup) {
  const SequenceTable table = sequence_table({0, 7});
  ASSERT_EQ(table.groups.size(), 1);
  EXPECT_EQ(table.groups.front().count, 1);
  EXPECT_THAT(table.words, ElementsAre(0, 7, 7, 0));
}

TEST(SequenceGroups, SizesAreRoundedUpToFewDigits) {
  EXPECT_EQ(rounded_up(1, 2), 1);
  EXPECT_EQ(rounded_up(5, 2), 6);
  EXPECT_EQ(rounded_up(4097, 2), 6144);
  EXPECT_EQ(rounded_up(6145, 2), 8192);
  EXPECT_EQ(rounded_up(16'384, 4), 16'384);
  EXPECT_EQ(rounded_up(16'385, 4), 18'432);
}

}  // namespace
}  // namespace sluice::ops
