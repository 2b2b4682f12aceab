#include "strategy/pipeline_micro_batch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace sluice::strategy {
namespace {

TEST(CausalChunk, ChunksCoverTheSequenceAndDifferByAtMostOne) {
  for (int64_t length = 1; length < 40; ++length) {
    for (int lanes = 1; lanes <= 6; ++lanes) {
      int64_t next = 0;
      for (int chunk = 0; chunk < 2 * lanes; ++chunk) {
        const base::Interval tokens = causal_chunk(length, lanes, chunk);
        EXPECT_EQ(tokens.begin, next);
        EXPECT_GE(tokens.end - tokens.begin, length / (2 * lanes));
        EXPECT_LE(tokens.end - tokens.begin, length / (2 * lanes) + 1);
        next = tokens.end;
      }
      EXPECT_EQ(next, length);
    }
  }
}

TEST(Unit, OneLaneHoldsWholeSequences) {
  const PipelineMicroBatch micro_batch{.first_lane = 3, .sequences = {{4, 7}, {1, 5}}};
  EXPECT_EQ(micro_batch.pieces_on(3), (std::vector<Piece>{{4, 0, 7}, {1, 0, 5}}));
  EXPECT_EQ(micro_batch.tokens_on(3), 12);
  EXPECT_EQ(micro_batch.tokens(), 12);
  EXPECT_THROW(micro_batch.pieces_on(2), base::AssertionError);
}

TEST(Unit, EachOfSeveralLanesHoldsAChunkFromEachEnd) {
  const PipelineMicroBatch micro_batch{.first_lane = 1, .lanes = 2, .sequences = {{1, 16}, {0, 8}}};
  EXPECT_EQ(micro_batch.pieces_on(1), (std::vector<Piece>{{1, 0, 4}, {1, 12, 16}, {0, 0, 2}, {0, 6, 8}}));
  EXPECT_EQ(micro_batch.pieces_on(2), (std::vector<Piece>{{1, 4, 8}, {1, 8, 12}, {0, 2, 4}, {0, 4, 6}}));
  EXPECT_EQ(micro_batch.tokens(), 12);
}

TEST(Unit, WholeSequencesOfALaneStandBehindItsParts) {
  const PipelineMicroBatch micro_batch{.lanes = 2, .sequences = {{0, 8}}, .own = {{}, {{5, 3}}}};
  EXPECT_EQ(micro_batch.pieces_on(0), (std::vector<Piece>{{0, 0, 2}, {0, 6, 8}}));
  EXPECT_EQ(micro_batch.pieces_on(1), (std::vector<Piece>{{0, 2, 4}, {0, 4, 6}, {5, 0, 3}}));
  EXPECT_EQ(micro_batch.tokens_on(0), 4);
  EXPECT_EQ(micro_batch.tokens(), 7);
}

TEST(Unit, EmptyChunksOfShortSequencesAreLeftOut) {
  const PipelineMicroBatch micro_batch{.lanes = 3, .sequences = {{0, 1}}};
  EXPECT_EQ(micro_batch.pieces_on(0), (std::vector<Piece>{{0, 0, 1}}));
  EXPECT_TRUE(micro_batch.pieces_on(1).empty());
  EXPECT_EQ(micro_batch.tokens_on(2), 0);
}

TEST(Exchange, NamesParseBack) {
  for (const Exchange exchange : {Exchange::kRing, Exchange::kHeads, Exchange::kNested}) {
    EXPECT_EQ(parse_exchange(name_of(exchange)), exchange);
  }
  EXPECT_THROW(parse_exchange("rings"), base::InputError);
}

TEST(InjectionOrder, FirstOfEveryLaneThenSecondAndSharedOnesBehindTheirLastLane) {
  // Lane 0: 0, 1 (with lane 1); lane 1: 1, 2; lane 2: 3.
  EXPECT_EQ(injection_order({{0, 1}, {1, 2}, {3}}), (std::vector<int>{0, 3, 1, 2}));
  const std::vector<PipelineMicroBatch> micro_batches = {{.sequences = {{0, 5}}},
                                                         {.lanes = 2, .sequences = {{1, 9}}},
                                                         {.first_lane = 1, .sequences = {{2, 5}}},
                                                         {.first_lane = 2, .sequences = {{3, 5}}}};
  const std::vector<PipelineMicroBatch> ordered = in_injection_order(micro_batches, 3);
  EXPECT_EQ(ordered, (std::vector<PipelineMicroBatch>{micro_batches[0], micro_batches[3], micro_batches[1],
                                                      micro_batches[2]}));
  EXPECT_EQ(in_injection_order(ordered, 3), ordered);
}

TEST(InjectionOrder, CrossingUnitsHaveNone) {
  EXPECT_FALSE(injection_order({{0, 1}, {1, 0}}).has_value());
  EXPECT_THROW(
      in_injection_order({PipelineMicroBatch{.lanes = 2}, PipelineMicroBatch{.lanes = 2}}, {{0, 1}, {1, 0}}),
      base::AssertionError);
}

// Chunks hold as many tokens as without branches; each lane has its part of the prefix; no token is lost.
TEST(LanePieces, OfBranchesAreACuttingOfTheSameTokens) {
  for (const int64_t length : {2, 9, 64, 1000}) {
    for (const int64_t prefix : {int64_t{1}, length / 3 + 1, length - 1}) {
      for (int lanes = 1; lanes <= 9; ++lanes) {
        const MicroBatchSequence with{7, length, prefix, 1}, without{7, length};
        std::vector<Piece> all;
        for (int lane = 0; lane < lanes; ++lane) {
          const std::vector<Piece> pieces = lane_pieces(with, lanes, lane);
          int64_t tokens = 0, plain = 0, of_prefix = 0;
          for (const Piece& scheduled : pieces) {
            EXPECT_TRUE(scheduled.end <= prefix || scheduled.begin >= prefix);
            tokens += scheduled.tokens();
            of_prefix += scheduled.end <= prefix ? scheduled.tokens() : 0;
          }
          for (const Piece& scheduled : lane_pieces(without, lanes, lane)) plain += scheduled.tokens();
          EXPECT_EQ(tokens, plain);
          EXPECT_LE(of_prefix, prefix / lanes + 2);
          EXPECT_TRUE(std::ranges::is_sorted(pieces, {}, &Piece::begin));
          all.insert(all.end(), pieces.begin(), pieces.end());
        }
        std::ranges::sort(all, {}, &Piece::begin);
        int64_t next = 0;
        for (const Piece& scheduled : all) {
          EXPECT_EQ(scheduled.begin, next);
          next = scheduled.end;
        }
        EXPECT_EQ(next, length);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::strategy
