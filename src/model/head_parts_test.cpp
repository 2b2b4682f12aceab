#include "model/head_parts.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/text.h"

namespace sluice::model {
namespace {

TEST(HeadParts, CoverAllQueriesOnceAndBringTheirKeys) {
  for (const HeadCounts heads : {HeadCounts{12, 6}, {32, 8}, {7, 1}, {5, 5}, {6, 2}}) {
    for (int lanes = 1; lanes <= heads.queries; ++lanes) {
      const HeadCounts most = most_heads(heads, lanes);
      EXPECT_EQ(most.queries, (heads.queries + lanes - 1) / lanes);
      int64_t next = 0;
      for (int lane = 0; lane < lanes; ++lane) {
        const HeadPart part = head_part(heads, lanes, lane);
        EXPECT_EQ(part.queries.begin, next);
        next = part.queries.end;
        EXPECT_GE(part.queries.size(), 1);
        EXPECT_LE(part.keys.size(), most.keys);
        const int64_t group = heads.queries / heads.keys;
        EXPECT_EQ(part.keys.begin, part.queries.begin / group);
        EXPECT_EQ(part.keys.end - 1, (part.queries.end - 1) / group);
      }
      EXPECT_EQ(next, heads.queries);
    }
  }
}

TEST(HeadParts, RunsServeEveryQueryByItsKeyWithOneRatio) {
  for (const HeadCounts heads : {HeadCounts{12, 6}, {32, 8}, {24, 3}, {5, 5}, {6, 2}}) {
    const int64_t group = heads.queries / heads.keys;
    for (int lanes = 1; lanes <= heads.queries; ++lanes) {
      for (int lane = 0; lane < lanes; ++lane) {
        const HeadPart part = head_part(heads, lanes, lane);
        const std::vector<HeadPart> runs = uniform_runs(heads, part);
        EXPECT_LE(runs.size(), 3u) << base::text(heads.queries, " heads, lane ", lane, " of ", lanes);
        int64_t query = 0;
        for (const HeadPart& run : runs) {
          ASSERT_EQ(run.queries.size() % run.keys.size(), 0);
          const int64_t ratio = run.queries.size() / run.keys.size();
          for (int64_t i = 0; i < run.queries.size(); ++i, ++query) {
            EXPECT_EQ(part.keys.begin + run.keys.begin + i / ratio, (part.queries.begin + query) / group);
          }
        }
        EXPECT_EQ(query, part.queries.size());
      }
    }
  }
}

TEST(HeadParts, WholeGroupsAreOneRun) {
  const HeadCounts heads{32, 8};
  EXPECT_EQ(uniform_runs(heads, head_part(heads, 1, 0)).size(), 1u);
  EXPECT_EQ(uniform_runs(heads, head_part(heads, 4, 3)).size(), 1u);
  EXPECT_EQ(uniform_runs(heads, head_part(heads, 16, 5)).size(), 1u);
  EXPECT_EQ(uniform_runs(heads, head_part(heads, 3, 1)).size(), 3u);
}

}  // namespace
}  // namespace sluice::model
