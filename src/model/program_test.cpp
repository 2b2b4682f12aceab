#include "model/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/test_outline.h"

namespace sluice::model {
namespace {

using base::Interval;
using testing::ElementsAre;

TEST(Program, OuterStagesHaveTheEnds) {
  const Program program(test_outline(4));
  EXPECT_EQ(program.size(), 6);
  EXPECT_EQ(program.of_stage(1, 1, 0), (Interval{0, 6}));
  EXPECT_EQ(program.of_stage(1, 3, 0), (Interval{0, 3}));
  EXPECT_EQ(program.of_stage(1, 3, 1), (Interval{3, 4}));
  EXPECT_EQ(program.of_stage(1, 3, 2), (Interval{4, 6}));
}

TEST(Program, StagesOfAlikeBlocksDifferByOneAndTheFirstHaveMore) {
  for (int64_t blocks = 1; blocks < 24; ++blocks) {
    const Program program(test_outline(blocks));
    for (int stages = 1; stages <= blocks; ++stages) {
      int64_t next = 0;
      for (int stage = 0; stage < stages; ++stage) {
        const Interval run = program.of_stage(1, stages, stage);
        EXPECT_EQ(run.begin, next);
        EXPECT_EQ(program.blocks_in(run).size(), blocks / stages + (stage < blocks % stages ? 1 : 0));
        next = run.end;
      }
      EXPECT_EQ(next, program.size());
    }
  }
}

// A head that takes as long as three blocks under TP degree 1, and half a block under TP degree 2.
TEST(Program, StagesAreCutByTheTimesOfTheirDegree) {
  const Outline outline = test_outline(8);
  const Program even(outline), timed(outline, {{1, {1, 10, 30}}, {2, {1, 10, 5}}});
  EXPECT_EQ(even.of_stage(1, 2, 0), (Interval{0, 5}));
  EXPECT_EQ(timed.of_stage(1, 2, 0), (Interval{0, 6}));
  EXPECT_EQ(timed.of_stage(1, 2, 1), (Interval{6, 10}));
  EXPECT_EQ(timed.of_stage(2, 2, 0), (Interval{0, 5}));
  EXPECT_EQ(timed.of_stage(4, 2, 0), even.of_stage(4, 2, 0));
  EXPECT_TRUE(timed.cuts_as(Program(outline, {{1, {1, 10, 30}}, {2, {1, 10, 5}}})));
  EXPECT_FALSE(timed.cuts_as(even));
}

TEST(Program, ATiedHeadReadsTheEmbeddingsBucket) {
  Outline outline = test_outline(3);
  EXPECT_THAT(Program(outline).buckets_of({2, 5}), ElementsAre(2, 3, 4));
  outline.tie_embeddings = true;
  const Program tied(outline);
  EXPECT_THAT(tied.buckets_of({2, 5}), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(tied.buckets_of({0, 5}), ElementsAre(0, 1, 2, 3, 4));
}

// Stages are cut among a trunk's own blocks; an end takes time only if the trunk has it.
TEST(Program, TrunksKeepThePositionsAndBucketsOfTheModel) {
  const Program whole(test_outline(6), {{1, {5, 10, 5}}});
  const Program first = whole.trunk({0, 4}), last = whole.trunk({4, 8});
  for (const Program& trunk : {first, last}) {
    EXPECT_EQ(trunk.size(), 8);
    EXPECT_EQ(trunk.head(), 7);
    EXPECT_EQ(trunk.run_blocks(), 3);
    EXPECT_EQ(trunk.buckets().size(), whole.buckets().size());
    EXPECT_FALSE(trunk.cuts_as(whole));
    EXPECT_EQ(trunk.of_stage(1, 1, 0), trunk.run());
  }
  EXPECT_EQ(first.of_stage(1, 2, 0), (base::Interval{0, 2}));
  EXPECT_EQ(first.of_stage(1, 2, 1), (base::Interval{2, 4}));
  EXPECT_EQ(last.of_stage(1, 2, 0), (base::Interval{4, 6}));
  EXPECT_EQ(last.of_stage(1, 2, 1), (base::Interval{6, 8}));
  EXPECT_EQ(last.of_stage(1, 3, 2), (base::Interval{6, 8}));
  EXPECT_TRUE(whole.trunk({0, 8}).cuts_as(whole));
  const Program middle = whole.trunk({2, 5});
  EXPECT_EQ(middle.of_stage(2, 3, 0), (base::Interval{2, 3}));
  EXPECT_EQ(middle.of_stage(2, 3, 2), (base::Interval{4, 5}));
}

TEST(Program, TrunksWithoutABlockAreRefused) {
  const Program whole(test_outline(2));
  for (const base::Interval run : {base::Interval{0, 1}, {3, 4}, {2, 2}, {1, 5}, {-1, 3}}) {
    EXPECT_THROW(whole.trunk(run), base::InputError) << run.begin << " to " << run.end;
  }
}

TEST(Program, LayersThatDifferAreOfSeveralKinds) {
  Outline outline = test_outline(5);
  const BlockType plain, unrotated{.rotates = false};
  outline.block_types = {plain, unrotated, plain, plain, unrotated};
  const Program program(outline);
  EXPECT_EQ(program.kinds().size(), 4u);
  EXPECT_FALSE(program.uniform());
  std::vector<int> kinds;
  for (int64_t position = 0; position < program.size(); ++position)
    kinds.push_back(program.at(position).kind);
  EXPECT_THAT(kinds, ElementsAre(0, 1, 2, 1, 1, 2, 3));
  EXPECT_THAT(short_model(outline).outline().block_types, ElementsAre(plain, unrotated, plain, unrotated));
  EXPECT_THAT(short_model(outline, 3).outline().block_types,
              ElementsAre(plain, unrotated, plain, plain, unrotated));
  EXPECT_EQ(short_model(test_outline(7)).outline().layers, 2);
  EXPECT_EQ(short_model(test_outline(7), 5).outline().layers, 5);
}

TEST(Program, FaultsOfBlocksComeFirst) {
  Outline outline = test_outline();
  outline.vocab = 2;
  EXPECT_EQ(tp_fault(outline, 3), "tp 3 does not divide 4 heads: choose one of 1, 2");
  EXPECT_EQ(tp_fault(outline, 4), "tp 4 is above vocab 2: choose one of 1, 2");
  EXPECT_EQ(pp_fault(outline, 4), "");
  EXPECT_EQ(pp_fault(outline, 5), "5 stages but the model has 4 layers: lower pp");
}

}  // namespace
}  // namespace sluice::model
