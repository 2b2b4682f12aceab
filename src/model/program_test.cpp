#include "model/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/test_shape.h"

namespace sluice::model {
namespace {

using base::Interval;
using testing::ElementsAre;

TEST(Program, OuterStagesHaveTheEnds) {
  const Program program(test_shape(4));
  EXPECT_EQ(program.size(), 6);
  EXPECT_EQ(program.of_stage(1, 1, 0), (Interval{0, 6}));
  EXPECT_EQ(program.of_stage(1, 3, 0), (Interval{0, 3}));
  EXPECT_EQ(program.of_stage(1, 3, 1), (Interval{3, 4}));
  EXPECT_EQ(program.of_stage(1, 3, 2), (Interval{4, 6}));
}

TEST(Program, StagesOfAlikeBlocksDifferByOneAndTheFirstHaveMore) {
  for (int64_t blocks = 1; blocks < 24; ++blocks) {
    const Program program(test_shape(blocks));
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

// A head that takes as long as three blocks under a degree of one, and half a block under two.
TEST(Program, StagesAreCutByTheTimesOfTheirDegree) {
  const Shape shape = test_shape(8);
  const Program even(shape), timed(shape, {{1, {1, 10, 30}}, {2, {1, 10, 5}}});
  EXPECT_EQ(even.of_stage(1, 2, 0), (Interval{0, 5}));
  EXPECT_EQ(timed.of_stage(1, 2, 0), (Interval{0, 6}));
  EXPECT_EQ(timed.of_stage(1, 2, 1), (Interval{6, 10}));
  EXPECT_EQ(timed.of_stage(2, 2, 0), (Interval{0, 5}));
  EXPECT_EQ(timed.of_stage(4, 2, 0), even.of_stage(4, 2, 0));
  EXPECT_TRUE(timed.cuts_as(Program(shape, {{1, {1, 10, 30}}, {2, {1, 10, 5}}})));
  EXPECT_FALSE(timed.cuts_as(even));
}

TEST(Program, ATiedHeadReadsTheEmbeddingsBucket) {
  Shape shape = test_shape(3);
  EXPECT_THAT(Program(shape).buckets_of({2, 5}), ElementsAre(2, 3, 4));
  shape.tie_embeddings = true;
  const Program tied(shape);
  EXPECT_THAT(tied.buckets_of({2, 5}), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(tied.buckets_of({0, 5}), ElementsAre(0, 1, 2, 3, 4));
}

TEST(Program, LayersThatDifferAreOfSeveralKinds) {
  Shape shape = test_shape(5);
  const BlockType plain, unrotated{.rotates = false};
  shape.block_types = {plain, unrotated, plain, plain, unrotated};
  const Program program(shape);
  EXPECT_EQ(program.kinds().size(), 4u);
  EXPECT_FALSE(program.uniform());
  std::vector<int> kinds;
  for (int64_t position = 0; position < program.size(); ++position)
    kinds.push_back(program.at(position).kind);
  EXPECT_THAT(kinds, ElementsAre(0, 1, 2, 1, 1, 2, 3));
  EXPECT_THAT(short_shape(shape).block_types, ElementsAre(plain, unrotated, plain, unrotated));
  EXPECT_THAT(short_shape(shape, 3).block_types, ElementsAre(plain, unrotated, plain, plain, unrotated));
  EXPECT_EQ(short_shape(test_shape(7)).layers, 2);
  EXPECT_EQ(short_shape(test_shape(7), 5).layers, 5);
}

TEST(Program, FaultsOfBlocksComeFirst) {
  Shape shape = test_shape();
  shape.vocab = 2;
  EXPECT_EQ(tp_fault(shape, 3), "tp 3 does not divide 4 heads: choose one of 1, 2");
  EXPECT_EQ(tp_fault(shape, 4), "tp 4 is above vocab 2: choose one of 1, 2");
  EXPECT_EQ(pp_fault(shape, 4), "");
  EXPECT_EQ(pp_fault(shape, 5), "5 stages but the model has 4 layers: lower pp");
}

}  // namespace
}  // namespace sluice::model
