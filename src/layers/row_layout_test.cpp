#include "layers/row_layout.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "layers/kv_cache.h"
#include "model/outline.h"

namespace sluice::layers {
namespace {

TEST(Layout, RowsAreATpMultipleAndPositionsRestart) {
  const RowLayout layout = row_layout({{3}, {2}}, 4, at::kCPU);
  EXPECT_EQ(layout.tokens, 5);
  EXPECT_EQ(layout.rows, 8);
  EXPECT_TRUE(at::equal(layout.position_T, at::tensor({0, 1, 2, 0, 1, 0, 0, 0}, at::kLong)));
}

TEST(Layout, PiecesOfARingKeepTheirPositionsAndAttendToEachOther) {
  const LanePartSpans micro_batch{
      .lane = 0, .members = {4, 7}, .lanes = {{{2, 0, 3}, {1, 6, 3}, {2}}, {{2, 2, 3}, {2, 4, 3}}}};
  const RowLayout layout = cp_row_layout(micro_batch, 1, at::kCPU);
  EXPECT_TRUE(at::equal(layout.position_T, at::tensor({0, 1, 6, 0, 1}, at::kLong)));
  EXPECT_EQ(layout.attended.sequences.begins, (std::vector<int64_t>{0, 3, 5}));
  EXPECT_EQ(layout.longest, 7);
  EXPECT_EQ(layout.attended.transfers.lanes, 2);
  EXPECT_FALSE(layout.heads.exchanges());
}

// Ten tokens of one sequence and three of another, on four lanes in two head groups: adjacent chunks join.
TEST(Layout, RunsOfLanesHaveTheirSequencesInOrder) {
  const LanePartSpans micro_batch{.lane = 1,
                                  .head_lanes = 2,
                                  .members = {0, 2, 4, 6},
                                  .lanes = {{{1, 0, 5}, {2, 8, 5}, {1, 2, 8}},
                                            {{1, 1, 5}, {1, 7, 5}, {1, 1, 8}},
                                            {{1, 2, 5}, {1, 6, 5}},
                                            {{2, 3, 5}, {1, 5, 5}, {1, 0, 8}}}};
  const RowLayout layout = cp_row_layout(micro_batch, 1, at::kCPU);
  EXPECT_EQ(layout.heads.lane, 1);
  EXPECT_EQ(layout.heads.members, (std::vector<int>{0, 2}));
  EXPECT_EQ(layout.heads.lane_rows, (std::vector<int64_t>{4, 3}));
  EXPECT_TRUE(at::equal(layout.heads.wire_row_A, at::tensor({0, 4, 5, 1, 2, 6, 3}, at::kLong)));
  EXPECT_TRUE(at::equal(layout.heads.attended_row_A, at::tensor({0, 3, 4, 6, 1, 2, 5}, at::kLong)));
  EXPECT_EQ(layout.attended.sequences.begins, (std::vector<int64_t>{0, 5, 7}));
  EXPECT_EQ(layout.attended.transfers.lanes, 2);
  for (const RowTransfers::Transfer& hop : layout.attended.transfers.steps[0].hops) EXPECT_EQ(hop.member, 6);
  EXPECT_TRUE(at::equal(layout.position_T, at::tensor({1, 7, 1}, at::kLong)));
}

// Four tokens over two lanes, and three tokens of the first lane's own.
TEST(Layout, WhatALaneHasAloneLiesBehindWhatExchangesHeads) {
  LanePartSpans micro_batch{
      .lane = 0, .head_lanes = 2, .members = {4, 7}, .lanes = {{{1, 0, 5}, {1, 3, 5}, {3}}, {{2, 1, 5}}}};
  const RowLayout layout = cp_row_layout(micro_batch, 1, at::kCPU, {.convolution = 4});
  EXPECT_EQ(layout.heads.lane_rows, (std::vector<int64_t>{2, 2}));
  EXPECT_TRUE(at::equal(layout.heads.wire_row_A, at::tensor({0, 2, 3, 1}, at::kLong)));
  ASSERT_NE(layout.own, nullptr);
  EXPECT_EQ(layout.own->attended.sequences.begins, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(layout.heads.rows() + layout.own->tokens, 7);
  EXPECT_EQ(layout.recurrent_heads.lane_rows, (std::vector<int64_t>{5, 2}));
  EXPECT_TRUE(at::equal(layout.recurrent_heads.wire_row_A, at::tensor({0, 5, 6, 1, 2, 3, 4}, at::kLong)));
  micro_batch.lane = 1;
  EXPECT_EQ(cp_row_layout(micro_batch, 1, at::kCPU).own, nullptr);
}

// A cache of one attention layer, whose rows a test names.
KvCache small_cache() {
  const model::Outline outline{
      .layers = 1, .hidden = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .ffn_hidden = 6, .vocab = 11};
  const model::Program program(outline);
  return {layer_context(outline, {}, 50, at::dtype(at::kFloat)),
          program,
          program.blocks(),
          64,
          4,
          at::dtype(at::kFloat)};
}

// The next tokens of a sequence that goes on, in two runs of the cache, beside a new prompt.
TEST(Layout, CachedPiecesAttendToTheirEarlierTokensWhereverTheseLie) {
  const KvCache cache = small_cache();
  const std::vector<CachedPiece> pieces = {
      {.length = 2, .begin = 7, .before = {{32, 36}, {8, 11}}, .own = {{11, 12}, {40, 41}}, .slot = 3},
      {.length = 3, .begin = 0, .before = {}, .own = {{20, 23}}, .slot = 1}};
  const RowLayout layout = cached_row_layout(pieces, cache, 2, at::kCPU, {.convolution = 4});
  EXPECT_TRUE(at::equal(layout.position_T, at::tensor({7, 8, 0, 1, 2, 0}, at::kLong)));
  EXPECT_EQ(layout.longest, 9);
  EXPECT_EQ(layout.attended.sequences.begins, (std::vector<int64_t>{0, 2, 5}));
  EXPECT_TRUE(at::equal(layout.cached.row_T, at::tensor({11, 40, 20, 21, 22}, at::kLong)));
  const ops::AttentionBlock first{{0, 2}, {32, 36}, 7}, second{{0, 2}, {8, 11}, 3};
  EXPECT_EQ(layout.cached.before, (std::vector<ops::AttentionBlock>{first, second}));
  EXPECT_TRUE(at::equal(layout.cached.slot_P, at::tensor({3, 1}, at::kLong)));
  EXPECT_EQ(layout.cached.goes_on_P[0].item<double>(), 1);
  EXPECT_EQ(layout.cached.goes_on_P[1].item<double>(), 0) << "a new sequence has no state";
}

// Through a window of 4 tokens the first new one sees three earlier ones, which lie in the second run.
TEST(Layout, CachedPiecesSeeThroughAWindowOnlyItsRows) {
  const KvCache cache = small_cache();
  const std::vector<CachedPiece> pieces = {
      {.length = 1, .begin = 7, .before = {{32, 36}, {8, 11}}, .own = {{11, 12}}}};
  const RowLayout layout = cached_row_layout(pieces, cache, 1, at::kCPU, {.windows = {4}});
  const ops::AttentionBlock seen{{0, 1}, {8, 11}, 3};
  EXPECT_EQ(layout.cached_through(4), (std::vector<ops::AttentionBlock>{seen}));
  EXPECT_EQ(layout.cached_through(0).size(), 2U) << "layers without the window see all";
}

TEST(Layout, ValuesOfTokensAreFilledUpForInertRows) {
  const RowLayout layout = row_layout({{3}}, 4, at::kCPU);
  EXPECT_TRUE(at::equal(row_values({5, 6, 7}, layout, at::kCPU), at::tensor({5, 6, 7, -1}, at::kLong)));
  EXPECT_TRUE(at::equal(row_values({5, 6, 7}, layout, at::kCPU, 9), at::tensor({5, 6, 7, 9}, at::kLong)));
}

}  // namespace
}  // namespace sluice::layers
