#include "model/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "base/text.h"
#include "model/outline.h"
#include "model/program.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

using base::Interval;
using testing::ElementsAre;

// 4 query heads and 2 key-value heads of 2 rows each.
Outline small_outline() {
  return {.layers = 2, .hidden = 8, .heads = 4, .kv_heads = 2, .head_dim = 2, .ffn_hidden = 6, .vocab = 10};
}

Outline random_outline(base::Rng& rng) {
  Outline outline{.layers = rng.between(1, 3), .hidden = rng.between(1, 20), .kv_heads = rng.between(1, 6)};
  outline.heads = outline.kv_heads * rng.between(1, 4);
  outline.head_dim = 2 * rng.between(1, 4);
  outline.ffn_hidden = rng.between(8, 40);
  outline.vocab = rng.between(8, 70);
  outline.tie_embeddings = rng.below(2) == 1;
  outline.qkv_bias = rng.below(2) == 1;
  outline.qk_norm = static_cast<QkNorm>(rng.below(3));
  return outline;
}

// Calls visit(outline, table, tp) for many outlines and every degree that cuts them.
template <typename Visit>
void for_random_cuts(const Visit& visit) {
  base::Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    const Outline outline = random_outline(rng);
    const ParameterTable table = parameter_table(outline);
    for (int tp = 1; tp <= outline.heads; ++tp) {
      if (tp_fault(outline, tp).empty()) visit(outline, table, tp);
    }
  }
}

// largest_shard() counts one expert; here the fullest rank's own rows are counted.
int64_t fullest_rank(const ParameterTable& table, int64_t position, int tp) {
  int64_t fullest = 0;
  for (int t = 0; t < tp; ++t) {
    int64_t elements = 0;
    for (const Bucket& bucket : table.buckets) {
      if (bucket.position == position) elements += local_elements(bucket, {tp, t});
    }
    fullest = std::max(fullest, elements);
  }
  return fullest;
}

TEST(ParameterTable, LargestShardIsTheFullestRanks) {
  for_random_cuts([](const Outline& outline, const ParameterTable& table, int tp) {
    const Program& program = table.program;
    for (int64_t position = 0; position < program.size(); ++position) {
      const bool shares_embedding = outline.tie_embeddings && position == program.head();
      if (shares_embedding) continue;
      EXPECT_EQ(largest_shard(program.kind_at(position), tp), fullest_rank(table, position, tp))
          << position << " " << tp;
    }
  });
  Outline routed = small_outline();
  routed.experts = {.count = 5, .per_token = 2, .hidden = 12};
  const ParameterTable table = parameter_table(routed);
  for (const int tp : {1, 2, 4}) {
    ASSERT_EQ(tp_fault(routed, tp), "");
    EXPECT_EQ(largest_shard(table.program.kind_at(1), tp), fullest_rank(table, 1, tp)) << tp;
  }
}

TEST(ParameterTable, LaysBucketsInForwardOrder) {
  const ParameterTable table = parameter_table(small_outline());
  ASSERT_EQ(table.buckets.size(), 4u);
  for (size_t i = 0; i < table.buckets.size(); ++i) EXPECT_EQ(table.buckets[i].index, static_cast<int>(i));
  EXPECT_EQ(table.embedding().layer, -1);
  EXPECT_EQ(table.layer(1).layer, 1);
  EXPECT_EQ(table.head().kind, 2);

  std::vector<std::string> lines;
  for (const Parameter& p : table.layer(1).parameters) {
    lines.push_back(base::text(p.name, " ", p.rows, "x", p.columns, " at ", p.offset));
  }
  EXPECT_THAT(lines, ElementsAre("layers.1.attention_norm 8x1 at 0", "layers.1.qkv 16x8 at 8",
                                 "layers.1.attention_out 8x8 at 136", "layers.1.mlp_norm 8x1 at 200",
                                 "layers.1.gate_up 12x8 at 208", "layers.1.down 6x8 at 304"));
  EXPECT_EQ(table.layer(1).size, 352);
}

TEST(ParameterTable, TiedHeadHasOnlyTheFinalNorm) {
  Outline outline = small_outline();
  EXPECT_EQ(parameter_table(outline).head().parameters.size(), 2u);
  outline.tie_embeddings = true;
  const ParameterTable table = parameter_table(outline);
  ASSERT_EQ(table.head().parameters.size(), 1u);
  EXPECT_EQ(table.head().parameters[0].role, roles::kFinalNorm);
}

TEST(TpRows, FusedMatricesAreCutGroupByGroup) {
  const Bucket layer = parameter_table(small_outline()).layer(0);
  // q rows 0-7, k rows 8-11, v rows 12-15.
  EXPECT_THAT(local_rows(layer.parameters[1], {2, 0}),
              ElementsAre(Interval{0, 4}, Interval{8, 10}, Interval{12, 14}));
  EXPECT_THAT(local_rows(layer.parameters[1], {2, 1}),
              ElementsAre(Interval{4, 8}, Interval{10, 12}, Interval{14, 16}));
  // gate rows 0-5, up rows 6-11.
  EXPECT_THAT(local_rows(layer.parameters[4], {2, 1}), ElementsAre(Interval{3, 6}, Interval{9, 12}));
  // Norms are whole everywhere.
  EXPECT_THAT(local_rows(layer.parameters[0], {2, 1}), ElementsAre(Interval{0, 8}));
}

TEST(TpRows, KeyValueHeadsAreSharedWhenTpExceedsThem) {
  const Bucket layer = parameter_table(small_outline()).layer(0);
  const std::vector<Interval> key_rows = {{8, 10}, {8, 10}, {10, 12}, {10, 12}};
  for (int t = 0; t < 4; ++t) {
    const std::vector<Interval> rows = local_rows(layer.parameters[1], {4, t});
    EXPECT_EQ(rows[0], (Interval{2 * t, 2 * t + 2}));
    EXPECT_EQ(rows[1], key_rows[static_cast<size_t>(t)]);
    EXPECT_EQ(rows[2].begin, rows[1].begin + 4);
  }
}

TEST(TpRows, QueryHeadsMeetTheirKeyValueHeads) {
  for_random_cuts([](const Outline& outline, const ParameterTable& table, int tp) {
    const Parameter& qkv = table.layer(0).parameters[1];
    for (int t = 0; t < tp; ++t) {
      const std::vector<Interval> rows = local_rows(qkv, {tp, t});
      const int64_t key_begin = (rows[1].begin - outline.q_width()) / outline.head_dim;
      const int64_t key_end = (rows[1].end - outline.q_width()) / outline.head_dim;
      for (int64_t q = rows[0].begin / outline.head_dim; q < rows[0].end / outline.head_dim; ++q) {
        const int64_t key = q / (outline.heads / outline.kv_heads);
        EXPECT_GE(key, key_begin);
        EXPECT_LT(key, key_end);
      }
    }
  });
}

TEST(TpRows, UnevenVocabularyIsCoveredOnceWithSizesOneApart) {
  Outline outline = small_outline();
  outline.heads = outline.kv_heads = 4;
  for (int64_t vocab = 4; vocab < 30; ++vocab) {
    outline.vocab = vocab;
    const ParameterTable table = parameter_table(outline);
    int64_t next = 0;
    for (int t = 0; t < 4; ++t) {
      const std::vector<Interval> rows = local_rows(table.embedding().parameters[0], {4, t});
      ASSERT_EQ(rows.size(), 1u);
      EXPECT_EQ(rows[0].begin, next);
      EXPECT_LE(rows[0].size(), vocab / 4 + 1);
      EXPECT_GE(rows[0].size(), vocab / 4);
      next = rows[0].end;
    }
    EXPECT_EQ(next, vocab);
  }
}

// The slow twin: how many ranks must hold each row, and how many do.
TEST(TpShard, RanksCoverEachBucketAndShareOnlyNormsAndKeyValueHeads) {
  for_random_cuts([](const Outline& outline, const ParameterTable& table, int tp) {
    for (const Bucket& bucket : table.buckets) {
      std::vector<int> holders(static_cast<size_t>(bucket.size), 0);
      for (int t = 0; t < tp; ++t) {
        const base::IntervalSet shard = shard_of(bucket, {tp, t});
        for (const Interval& interval : shard.intervals()) {
          for (int64_t i = interval.begin; i < interval.end; ++i) ++holders[static_cast<size_t>(i)];
        }
      }
      for (const Parameter& parameter : bucket.parameters) {
        for (int64_t i = 0; i < parameter.size(); ++i) {
          const bool of_heads = parameter.role == roles::kQkv || parameter.role == roles::kQkvBias;
          const bool key_or_value =
              parameter.role == roles::kKNorm || (of_heads && i / parameter.columns >= outline.q_width());
          int64_t expected = 1;
          if (key_or_value && tp > outline.kv_heads) expected = tp / outline.kv_heads;
          if (parameter.replicated) expected = tp;
          ASSERT_EQ(holders[static_cast<size_t>(parameter.offset + i)], expected)
              << parameter.name << " tp " << tp;
        }
      }
    }
  });
}

TEST(Experts, LieInABucketOfTheirOwnAndAreDividedWhole) {
  Outline outline = small_outline();
  outline.experts = {.count = 6, .per_token = 2, .hidden = 4, .biases = true};
  const ParameterTable table = parameter_table(outline);
  const base::Interval own = table.program.at(1).own;
  ASSERT_EQ(own.size(), 2);
  const Bucket& experts = table.buckets[static_cast<size_t>(own.begin) + 1];
  EXPECT_TRUE(experts.of_experts);
  EXPECT_FALSE(table.layer(0).of_experts);
  for (const Parameter& parameter : experts.parameters) {
    const int64_t of_expert = parameter.rows / 6;
    const std::vector<Interval> rows = local_rows(parameter, {1, 0, 3, 1});
    EXPECT_EQ(rows.front().begin, 2 * of_expert) << parameter.name;
    EXPECT_EQ(rows.back().end, 4 * of_expert) << parameter.name;
  }
  EXPECT_EQ(experts_fault(outline, 3), "");
  EXPECT_EQ(experts_fault(outline, 4), "4 lanes do not divide 6 experts: choose one of 1, 2, 3, 6");
}

TEST(LocalParameters, LieWhereTheShardPutsTheirRows) {
  for_random_cuts([](const Outline&, const ParameterTable& table, int tp) {
    for (const Bucket& bucket : table.buckets) {
      for (int t = 0; t < tp; ++t) {
        const base::IntervalSet shard = shard_of(bucket, {tp, t});
        const std::vector<LocalParameter> locals = local_parameters(bucket, {tp, t});
        int64_t end = 0;
        for (size_t i = 0; i < bucket.parameters.size(); ++i) {
          const Parameter& parameter = bucket.parameters[i];
          const LocalParameter& local = locals[i];
          EXPECT_EQ(local.columns, parameter.columns);
          EXPECT_EQ(local.offset, end);
          int64_t local_row = 0;
          for (const Interval& rows : local_rows(parameter, {tp, t})) {
            for (int64_t row = rows.begin; row < rows.end; ++row, ++local_row) {
              ASSERT_EQ(shard.offset_of(parameter.offset + row * parameter.columns),
                        local.offset + local_row * local.columns);
            }
          }
          EXPECT_EQ(local.rows, local_row);
          end = local.offset + local.rows * local.columns;
        }
        EXPECT_EQ(end, shard.size());
      }
    }
  });
}

}  // namespace
}  // namespace sluice::model
