#include "layers/row_layout.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

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

}  // namespace
}  // namespace sluice::layers
