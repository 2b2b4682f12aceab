// T: rows, N: query heads, J: key and value heads, R: rows of the cache, D: dimensions per head.
#include "ops/paged_sequences.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <vector>

#include "ops/attention.h"

namespace sluice::ops {
namespace {

constexpr int64_t kPageRows = 8;

std::vector<int32_t> numbers_of(const at::Tensor& x, int64_t begin, int64_t count) {
  const int32_t* first = x.const_data_ptr<int32_t>() + begin;
  return {first, first + count};
}

TEST(PagedSequences, EachGroupHasATableAsWideAsItsPlansKeys) {
  // Five sequences are a group of four and one of a single sequence.
  const PagedSequences paged = paged_sequences({{{0, 1}, 9, {3, 5}},
                                                {{1, 2}, 8, {4, 99}},
                                                {{2, 5}, 30, {1, 2, 6, 7}},
                                                {{5, 6}, 1, {0}},
                                                {{6, 7}, 600, std::vector<int64_t>(75, 11)}},
                                               kPageRows, at::kCPU);
  ASSERT_EQ(paged.table.groups.size(), 2);
  EXPECT_EQ(paged.queries(), 7);
  EXPECT_THAT(paged.tables_at, testing::ElementsAre(0, 4 * 64));
  EXPECT_THAT(numbers_of(paged.page_table, 0, 3), testing::ElementsAre(3, 5, 0));
  EXPECT_THAT(numbers_of(paged.page_table, 64, 2), testing::ElementsAre(4, 0)) << "page 99 holds no key";
  EXPECT_THAT(numbers_of(paged.page_table, 2 * 64, 5), testing::ElementsAre(1, 2, 6, 7, 0));
  EXPECT_EQ(paged.page_table.size(0), 4 * 64 + 2048 / kPageRows);
  EXPECT_THAT(numbers_of(paged.page_table, 4 * 64 + 74, 2), testing::ElementsAre(11, 0));
  EXPECT_TRUE(paged_sequences({}, kPageRows, at::kCPU).empty());
}

// A sequence's last queries see what they see in the whole sequence.
TEST(PagedSequences, QueriesAreTheLastOfTheirKeys) {
  const at::Tensor qkv_TPD = at::rand({29, 6, 4}, at::kDouble),
                   cache_RJD = at::zeros({64, 4, 4}, at::kDouble);
  const std::vector<int64_t> pages{6, 1, 3, 0};
  for (int64_t row = 0; row < 29; ++row) {
    const int64_t at = pages[static_cast<size_t>(row / kPageRows)] * kPageRows + row % kPageRows;
    cache_RJD.select(0, at).copy_(qkv_TPD.select(0, row).narrow(0, 2, 4));
  }
  for (const int64_t window : {0, 5, 12}) {
    AttentionInput input{qkv_TPD.narrow(1, 0, 2), qkv_TPD.narrow(1, 2, 2), qkv_TPD.narrow(1, 4, 2), 0.4,
                         window};
    const AttentionResult whole = attention(input, packed_sequences({29}, at::kCPU));
    input.k_TKD = cache_RJD.narrow(1, 0, 2);
    input.v_TKD = cache_RJD.narrow(1, 2, 2);
    for (const int64_t queries : {1, 7, 29}) {
      AttentionInput last = input;
      last.q_TND = input.q_TND.narrow(0, 29 - queries, queries);
      const AttentionResult result =
          aten::attend_pages(last, paged_sequences({{{0, queries}, 29, pages}}, kPageRows, at::kCPU));
      EXPECT_TRUE(result.out_TND.allclose(whole.out_TND.narrow(0, 29 - queries, queries), 1e-12, 1e-12))
          << window << ", " << queries;
      EXPECT_TRUE(result.lse_NT.allclose(whole.lse_NT.narrow(1, 29 - queries, queries), 1e-12, 1e-12));
    }
  }
}

}  // namespace
}  // namespace sluice::ops
