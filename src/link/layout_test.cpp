#include "link/layout.h"

#include <gmock/gmock.h>

#include <set>

#include "base/error.h"
#include "link/test_cases.h"
#include "model/outline.h"

namespace sluice::link {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

model::Outline small_shape(int64_t layers, bool tied) {
  return {.layers = layers,
          .hidden = 8,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 2,
          .ffn_hidden = 12,
          .vocab = 16,
          .tie_embeddings = tied};
}

std::vector<int> bucket_indices(const ComputeLayout& layout, int rank) {
  std::vector<int> indices;
  for (const Holding& holding : layout.holdings(rank)) indices.push_back(holding.bucket);
  return indices;
}

TEST(OwnerLayout, CutsEveryBucketEvenly) {
  const model::ParameterTable table = model::parameter_table(small_shape(2, false));
  const OwnerLayout owners{5};
  for (const model::Bucket& bucket : table.buckets) {
    int64_t end = 0;
    for (int rank = 0; rank < 5; ++rank) {
      const base::Interval owned = owners.owned(bucket, rank);
      EXPECT_EQ(owned.begin, end);
      EXPECT_LE(owned.size(), bucket.size / 5 + 1);
      end = owned.end;
    }
    EXPECT_EQ(end, bucket.size);
  }
}

TEST(ComputeLayout, StagesHoldTheirLayers) {
  const model::ParameterTable table = model::parameter_table(small_shape(4, false));
  const ComputeLayout layout(table, strategy::parse_strategy("<1,3,1>", 4), 4);
  EXPECT_THAT(bucket_indices(layout, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(bucket_indices(layout, 1), ElementsAre(3));
  EXPECT_THAT(bucket_indices(layout, 2), ElementsAre(4, 5));
  EXPECT_TRUE(layout.holdings(3).empty());
  EXPECT_TRUE(layout.shard(0, 3).empty());
}

TEST(ComputeLayout, TiedEmbeddingIsHeldByFirstAndLastStage) {
  const model::ParameterTable table = model::parameter_table(small_shape(2, true));
  const ComputeLayout layout(table, strategy::parse_strategy("<1,2,1> + <1,1,1>", 3), 3);
  EXPECT_THAT(layout.holders(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(bucket_indices(layout, 1), ElementsAre(0, 2, 3));
  EXPECT_THAT(layout.holders(3), ElementsAre(1, 2));
}

TEST(ComputeLayout, EveryPipelineHoldsEveryElement) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Case c = random_case(seed);
    const ComputeLayout layout(c.table, c.strategy, c.world_size);
    for (const strategy::Pipeline& pipeline : c.strategy.pipelines) {
      for (const model::Bucket& bucket : c.table.buckets) {
        base::IntervalSet held;
        for (const int rank : pipeline.ranks) {
          for (const base::Interval& part : layout.shard(bucket.index, rank).intervals()) held.add(part);
        }
        EXPECT_EQ(held, (base::IntervalSet{{0, bucket.size}})) << "seed " << seed;
      }
    }
  }
}

// Resident parts of a share group lie end to end in the order of lanes and make up the shard of each
// lane.
TEST(ComputeLayout, ShareGroupsCutTheShardOfTheirLanes) {
  const model::ParameterTable table = model::parameter_table(small_shape(3, true));
  const strategy::Strategy shared = strategy::parse_strategy("<2,1,6,3>", 12);
  const ComputeLayout layout(table, shared, 12);
  for (const model::Bucket& bucket : table.buckets) {
    for (int lane = 0; lane < 6; lane += 3) {
      for (int t = 0; t < 2; ++t) {
        const base::IntervalSet whole = model::shard_of(bucket, {2, t});
        int64_t next = 0;
        for (const int rank : shared.pipelines[0].fsdp_group(0, lane, t)) {
          const base::IntervalSet& own = layout.shard(bucket.index, rank);
          EXPECT_LE(own.size(), (whole.size() + 2) / 3);
          for (const base::Interval& part : own.intervals()) {
            EXPECT_EQ(whole.offset_of(part.begin), next);
            next += part.size();
          }
        }
        EXPECT_EQ(next, whole.size());
      }
    }
  }
}

// Lanes in the same place of their expert groups hold the same experts together; all other parameters lie as
// if lanes gathered experts.
TEST(ComputeLayout, ExpertGroupsDivideExperts) {
  model::Outline outline = small_shape(2, false);
  outline.experts = {.count = 4, .per_token = 2, .hidden = 6};
  const model::ParameterTable table = model::parameter_table(outline);
  const strategy::Strategy divided = strategy::parse_strategy("<2,1,4,4,2>", 8);
  const ComputeLayout layout(table, divided, 8);
  const ComputeLayout gathered(table, strategy::parse_strategy("<2,1,4,4>", 8), 8);
  int of_experts = 0;
  for (const model::Bucket& bucket : table.buckets) {
    if (!bucket.of_experts) {
      for (int rank = 0; rank < 8; ++rank)
        EXPECT_EQ(layout.shard(bucket.index, rank), gathered.shard(bucket.index, rank));
      continue;
    }
    ++of_experts;
    for (int t = 0; t < 2; ++t) {
      base::IntervalSet all;
      for (int place = 0; place < 2; ++place) {
        const base::IntervalSet own = model::shard_of(bucket, {2, t, 2, place});
        EXPECT_EQ(2 * own.size(), model::shard_of(bucket, {2, t}).size());
        base::IntervalSet held;
        for (const int lane : {place, place + 2}) {
          const int rank = divided.pipelines[0].rank_of(0, lane, t);
          for (const base::Interval& part : layout.shard(bucket.index, rank).intervals()) held.add(part);
        }
        EXPECT_EQ(held, own);
        for (const base::Interval& part : own.intervals()) all.add(part);
      }
      EXPECT_EQ(all.size(), model::shard_of(bucket, {2, t}).size());
    }
  }
  EXPECT_EQ(of_experts, 2);
}

// A lane holds the experts that have slots there; an expert with several slots lies on several lanes.
TEST(ComputeLayout, PlacedExpertsLieWhereTheirSeatsAre) {
  model::Outline outline = small_shape(2, false);
  outline.experts = {.count = 4, .per_token = 2, .hidden = 6};
  outline.block_types = {{}, {.experts = true}};
  const model::ParameterTable table = model::parameter_table(outline);
  strategy::Strategy strategy = strategy::parse_strategy("<2,1,4,4,2>", 8);
  strategy.pipelines[0].placement =
      std::make_shared<const strategy::ExpertPlacement>(strategy::ExpertPlacement{{{}, {0, 1, 3, 0, 2, 3}}});
  const ComputeLayout layout(table, strategy, 8);
  for (const model::Bucket& bucket : table.buckets) {
    if (!bucket.of_experts) continue;
    for (int t = 0; t < 2; ++t) {
      const auto of_expert = [&](int expert) { return model::shard_of(bucket, {2, t, 4, expert}); };
      for (int place = 0; place < 2; ++place) {
        std::set<int64_t> own, held;
        const auto add = [](std::set<int64_t>& to, const base::IntervalSet& from) {
          for (const base::Interval& part : from.intervals()) {
            for (int64_t element = part.begin; element < part.end; ++element) to.insert(element);
          }
        };
        for (const int expert : strategy.pipelines[0].experts_of(1, place)) add(own, of_expert(expert));
        for (const int lane : {place, place + 2}) {
          add(held, layout.shard(bucket.index, strategy.pipelines[0].rank_of(0, lane, t)));
        }
        EXPECT_EQ(held, own);
        EXPECT_EQ(std::ssize(held), 3 * of_expert(0).size());
      }
    }
  }
  strategy.pipelines[0].placement =
      std::make_shared<const strategy::ExpertPlacement>(strategy::ExpertPlacement{{{}, {0, 1}}});
  EXPECT_THAT(
      [&] { ComputeLayout(table, strategy, 8); },
      testing::ThrowsMessage<base::InputError>(testing::HasSubstr("layer 1 places 2 experts and has 4")));
}

TEST(ResidentPart, TheLastRanksHoldWhatIsLeft) {
  EXPECT_EQ(resident_part(10, 4, 0), (base::Interval{0, 3}));
  EXPECT_EQ(resident_part(10, 4, 3), (base::Interval{9, 10}));
  EXPECT_TRUE(resident_part(2, 4, 3).empty());
  EXPECT_EQ(resident_part(7, 1, 0), (base::Interval{0, 7}));
}

TEST(ComputeLayout, SchemeThatCannotCutTheModelIsRefusedByName) {
  const model::ParameterTable table = model::parameter_table(small_shape(2, false));
  const auto message = [&](const char* strategy) -> std::string {
    try {
      ComputeLayout(table, strategy::parse_strategy(strategy, 8), 8);
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message("<3,1,1>"), HasSubstr("<3,1,1>"));
  EXPECT_THAT(message("<1,3,1>"), HasSubstr("3 stages but the model has 2 layers"));
  EXPECT_EQ(message("<4,2,1>"), "accepted");
  EXPECT_THAT(message("<1,1,4,4,2>"), HasSubstr("2 lanes divide experts, but the model has none"));
}

TEST(ComputeLayout, TrunksHoldTheBucketsThatTheyRead) {
  const model::ParameterTable whole = model::parameter_table(small_shape(4, /*tied=*/true));
  const auto trunk = [&](base::Interval run) {
    return model::parameter_table(whole.model, whole.program.trunk(run));
  };
  const strategy::Strategy stages = strategy::parse_strategy("<1,2,1>", 2);
  const model::ParameterTable first = trunk({0, 3}), last = trunk({3, 6});
  EXPECT_THAT(bucket_indices(ComputeLayout(first, stages, 2), 0), ElementsAre(0, 1));
  EXPECT_THAT(bucket_indices(ComputeLayout(first, stages, 2), 1), ElementsAre(2));
  EXPECT_THAT(bucket_indices(ComputeLayout(last, stages, 2), 0), ElementsAre(3));
  EXPECT_THAT(bucket_indices(ComputeLayout(last, stages, 2), 1), ElementsAre(0, 4, 5));
  // The embedding's bucket travels with the head that is tied to it; others' travel in no round.
  EXPECT_THAT(rounds(last, stages).buckets, ElementsAre(ElementsAre(0, 3, 4, 5)));
  EXPECT_EQ(rounds(last, stages).round_of(1), -1);
  EXPECT_THAT(rounds(first, stages).buckets, ElementsAre(ElementsAre(0, 1, 2)));
  try {
    ComputeLayout(last, strategy::parse_strategy("<1,3,1>", 3), 3);
    FAIL() << "three stages of two blocks";
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("3 stages but the trunk has 2 layers: lower pp"));
  }
}

TEST(Rounds, OneLayerOfEveryStagePerTpRanks) {
  // Stages hold 4 layers; tp 2 makes R = 2: layers 0,1 and 4,5 first.
  const model::ParameterTable table = model::parameter_table(small_shape(8, false));
  const Rounds result = rounds(table, strategy::parse_strategy("<2,2,1>", 4));
  EXPECT_THAT(result.buckets, ElementsAre(ElementsAre(0, 1, 2, 5, 6), ElementsAre(3, 4, 7, 8, 9)));
  EXPECT_EQ(result.round_of(6), 0);
  EXPECT_EQ(result.round_of(9), 1);
}

TEST(Rounds, CountTheRanksThatShareALayerToo) {
  const model::ParameterTable table = model::parameter_table(small_shape(8, false));
  EXPECT_EQ(rounds(table, strategy::parse_strategy("<1,1,4>", 4)).buckets.size(), 8u);
  EXPECT_EQ(rounds(table, strategy::parse_strategy("<1,1,4,2>", 4)).buckets.size(), 4u);
  EXPECT_EQ(rounds(table, strategy::parse_strategy("<2,1,4,4>", 8)).buckets.size(), 1u);
}

TEST(Rounds, FollowTheStagesOfTheDeepestPipelines) {
  // Both have R = 2; <2,1,1> alone would take layers 0 and 1 first.
  const model::ParameterTable table = model::parameter_table(small_shape(4, false));
  const Rounds result = rounds(table, strategy::parse_strategy("<1,2,1> + <2,1,1>", 4));
  EXPECT_THAT(result.buckets, ElementsAre(ElementsAre(0, 1, 3), ElementsAre(2, 4, 5)));
}

TEST(Rounds, EveryBucketTravelsOnce) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Case c = random_case(seed);
    std::multiset<int> seen;
    for (const std::vector<int>& round : rounds(c.table, c.strategy).buckets) {
      EXPECT_FALSE(round.empty());
      EXPECT_TRUE(std::is_sorted(round.begin(), round.end()));
      seen.insert(round.begin(), round.end());
    }
    EXPECT_EQ(seen.size(), c.table.buckets.size());
    EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), c.table.buckets.size());
  }
}

}  // namespace
}  // namespace sluice::link
