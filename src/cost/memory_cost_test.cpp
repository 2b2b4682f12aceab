#include "cost/memory_cost.h"

#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "cost/link_buffers.h"
#include "cost/test_model.h"
#include "model/test_outline.h"
#include "model/test_tuning.h"

namespace sluice::cost {
namespace {

using strategy::Scheme;

TEST(MemoryCost, FixedBytesAreThoseOfTheFullestStage) {
  const CostModel cost(tiny_options());
  const int64_t layer = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 96 + 2 * 64;
  const int64_t table = 100 * 64;
  const int64_t all = 5 * layer + 2 * table + 64;
  EXPECT_EQ(MemoryCost(cost, {}).fixed_bytes(1), with_small_tensors(all * 8 + all * 16 + 4000));
  // Two stages of three and two layers: the first is fuller. Its embedding travels with a layer, in a buffer
  // to send from and one to receive in.
  EXPECT_EQ(MemoryCost(cost, {.pp = 2}).fixed_bytes(4),
            with_small_tensors((3 * layer + table) * 8 + (all + 3) / 4 * 16 + 2 * (layer + table) * 4));
  // Tied, on five stages: the last holds embedding, final norm and a layer.
  const CostModel tied(tiny_options(true));
  const int64_t all_tied = 5 * layer + table + 64;
  EXPECT_EQ(MemoryCost(tied, {.pp = 5}).fixed_bytes(5),
            with_small_tensors((layer + table + 64) * 8 + (all_tied + 4) / 5 * 16 + 4000 +
                               2 * (layer + table + 64) * 4));
}

TEST(MemoryCost, OwnersHaveNarrowCopiesOfTheirMasters) {
  CostModel::Options options = tiny_options();
  const int64_t wide = MemoryCost(CostModel(options), {}).fixed_bytes(1);
  options.memory.element_bytes = 2;
  EXPECT_EQ(MemoryCost(CostModel(options), {}).fixed_bytes(1), wide)
      << "parameters and copies in 2 bytes each";
}

int64_t buffers_of(int64_t elements, int64_t element_bytes, strategy::PullCodec pull, strategy::Codec push) {
  const MemoryModel memory{.element_bytes = element_bytes, .accumulator_bytes = 4};
  LinkBuffers buffers(memory, pull, push, /*world_size=*/2);
  buffers.add_round({elements, elements, elements, elements}, link_pieces(elements));
  return buffers.bytes();
}

// Both directions' codes and a factor of each row, of all narrow layers of the stage. Where lanes gather
// them: of one layer, in one direction.
TEST(MemoryCost, WeightsOf8BitFloatsKeepTheirCodes) {
  constexpr int64_t kElements = 128 * 64 + 64 * 64 + 192 * 64 + 64 * 96;
  constexpr int64_t kCodes = 2 * kElements + 4 * (192 + 128 + 256 + 160);
  const auto added = [&](const Scheme& scheme, const std::vector<int>& layers) {
    const auto fixed = [&](const std::vector<int>& rounded) {
      strategy::Pipeline pipeline{.scheme = scheme, .ranks = {}};
      pipeline.device.low_precision = std::make_shared<const strategy::LowPrecisionGemms>(
          strategy::LowPrecisionGemms{base::GemmFormat::kFloat8, rounded});
      return MemoryCost(CostModel(tiny_options()).on(pipeline), scheme).fixed_bytes(4);
    };
    return static_cast<double>(fixed(layers) - fixed({}));
  };
  EXPECT_NEAR(added({}, {0, 2, 4}), 3 * kCodes, 0.01 * kCodes);
  EXPECT_NEAR(added({.pp = 5}, {1, 2, 4}), kCodes, 0.01 * kCodes);
  EXPECT_NEAR(added({.cp = 2, .fsdp = 2}, {0, 1, 2, 3, 4}), kCodes / 2, 0.01 * kCodes);
}

TEST(LinkBuffers, HoldWhatTravelsAndWhatItIsCodedFrom) {
  using strategy::Codec;
  using strategy::PullCodec;
  EXPECT_EQ(buffers_of(0, 4, PullCodec::kNone, Codec::kNone), 0);
  EXPECT_EQ(buffers_of(1000, 4, PullCodec::kNone, Codec::kNone), 2 * 4000);
  EXPECT_EQ(buffers_of(1000, 2, PullCodec::kNone, Codec::kNone), 2 * 4000) << "gradients are the wider ones";
  EXPECT_GE(buffers_of(1000, 4, PullCodec::kBFloat16, Codec::kBFloat16), 2 * 2000 + 4000);
  EXPECT_GE(buffers_of(1000, 2, PullCodec::kInt8Difference, Codec::kNone), 2 * 4000 + 2 * 2000);
}

TEST(LinkBuffers, TakeTheLargestRoundOfEachBuffer) {
  const MemoryModel memory{.element_bytes = 4, .accumulator_bytes = 4};
  LinkBuffers buffers(memory, strategy::PullCodec::kNone, strategy::Codec::kNone, /*world_size=*/2);
  // In push what was received goes back.
  buffers.add_round({.sent = 10, .received = 30, .trained_sent = 10, .trained_received = 0}, 1);
  EXPECT_EQ(buffers.bytes(), (10 + 30) * 4);
  buffers.add_round({.sent = 20, .received = 5, .trained_sent = 0, .trained_received = 0}, 1);
  EXPECT_EQ(buffers.bytes(), (20 + 30) * 4);
}

TEST(LinkBuffers, StaySmallWhateverTravels) {
  EXPECT_EQ(link_pieces(0), 1);
  EXPECT_EQ(link_pieces(kPieceElements), 1);
  EXPECT_EQ(link_pieces(kPieceElements + 1), 2);
  for (const int64_t elements : {kPieceElements * 3, kPieceElements * 3 + 1, kPieceElements * 1000}) {
    const int64_t bytes = buffers_of(elements, 4, strategy::PullCodec::kNone, strategy::Codec::kNone);
    EXPECT_GE(bytes * link_pieces(elements), 2 * elements * 4);
    EXPECT_LE(bytes, kPieceElements * 2 * 4 * 65 / 64 + 8);
  }
}

// Masters alone of what is frozen, and parameters to compute with: 4 bytes each in FP32.
TEST(MemoryCost, WhatIsFrozenHasNeitherGradientNorMoments) {
  CostModel::Options options = tiny_options();
  const int64_t whole = MemoryCost(CostModel(options), {}).fixed_bytes(1);
  const int64_t all_trained = model::parameter_table(options.model).size() * 24 + 4000;
  EXPECT_EQ(whole, with_small_tensors(all_trained));
  const model::ParameterTable table = model::parameter_table(options.model);
  model::freeze(options.model, {"*.mlp.*", "model.embed_tokens"});
  for (auto& [tp, kinds] : options.kinds_by_tp) {
    ASSERT_EQ(model::Program(options.model).kinds().size(), kinds.size());
  }
  const int64_t trained = model::parameter_table(options.model).trained_size();
  EXPECT_EQ(MemoryCost(CostModel(options), {}).fixed_bytes(1),
            with_small_tensors(all_trained - (table.size() - trained) * (4 + 12)));
}

// Each token has an id, a position and a sequence; each with a loss has a row, a place and a target
// besides.
constexpr int64_t kIndices = 3 * 8;

TEST(MemoryCost, CreditCountsDeferredWeightGradientsAndTransients) {
  const CostModel cost(tiny_options());
  const int64_t free_one = 10'000'000 - MemoryCost(cost, {}).fixed_bytes(1);
  constexpr int64_t kTransient = 300 + kIndices;
  EXPECT_EQ(MemoryCost(cost, {}).max_len_tokens(1), free_one / (5 * 1000 + 256 + kTransient));
  const int64_t free_two = 10'000'000 - MemoryCost(cost, {.pp = 2}).fixed_bytes(2);
  const int64_t longest = free_two / (3 * 1500 + 256 + kTransient);
  EXPECT_EQ(MemoryCost(cost, {.pp = 2}).max_len_tokens(2), longest);
  EXPECT_EQ(MemoryCost(cost, {.pp = 2}).credit_tokens(2),
            (free_two - kTransient * longest) / (3 * 1500 + 256));
  EXPECT_GE(MemoryCost(cost, {.pp = 2}).credit_tokens(2), longest);
}

TEST(MemoryCost, ModelThatDoesNotFitHoldsNothing) {
  CostModel::Options options = tiny_options();
  options.memory.device_bytes = 1'000'000;
  const CostModel cost(options);
  EXPECT_EQ(MemoryCost(cost, {}).max_len_tokens(1), 0);
  EXPECT_EQ(MemoryCost(cost, {}).credit_tokens(1), 0);
}

TEST(MemoryCost, OffloadingLeavesTwoLayersAndFillsTheHost) {
  CostModel::Options options = tiny_options();
  const Scheme one;
  const CostModel keep(options);
  const CostModel half = keep.under({.offload_permille = 500});
  // Five layers of 1000 bytes: three of them half away; a row of 256 bytes at the boundary.
  EXPECT_EQ(MemoryCost(keep, one).held_bytes_per_token(), 5 * 1000 + 256);
  EXPECT_EQ(MemoryCost(half, one).held_bytes_per_token(), 2 * 1000 + 3 * 500 + 256);
  EXPECT_EQ(MemoryCost(half, one).offloaded_bytes(1, 7), 3500);
  EXPECT_FALSE(half.splits_backward({.pp = 2}));
  options.memory.host_bytes = 3 * 500 * 100;
  EXPECT_EQ(MemoryCost(CostModel(options).under({.offload_permille = 500}), one).max_len_tokens(1), 100);
  EXPECT_EQ(MemoryCost(CostModel(options), one).max_len_tokens(1), MemoryCost(keep, one).max_len_tokens(1));
}

// 300 bytes a row, of which a quarter is of every row; the logits of 64 rows are smaller.
TEST(MemoryCost, HeadsHaveAtWorkWhatRowsWithALossNeed) {
  const CostModel cost(tiny_options());
  const auto working = [&](int tp, int64_t loss_tokens) {
    return MemoryCost(cost, {.tp = tp}).working_bytes(CellKind::kForward, {6, 7}, 1000, loss_tokens, false);
  };
  EXPECT_EQ(working(1, 1000), 1000 * 300 + 2000 * kIndices);
  EXPECT_EQ(working(1, 50), 1000 * 75 + 50 * 225 + 1050 * kIndices);
  EXPECT_EQ(working(1, 0), 1000 * 75 + 1000 * kIndices);
  // All of them may lie in one rank's half: the other then gives as many.
  EXPECT_EQ(working(2, 50), 1000 * 75 + 100 * 225 + 1100 * kIndices);
  EXPECT_EQ(working(2, 900), 1000 * 300 + 2000 * kIndices);
}

TEST(MemoryCost, NothingIsKeptBelowTheFirstTrainedLayer) {
  const CostModel cost(tiny_options_with_frozen_start());
  const MemoryCost memory(cost, {});
  EXPECT_EQ(memory.kept_bytes_per_token(2), 0);
  EXPECT_EQ(memory.kept_bytes_per_token(3), 1000);
  EXPECT_EQ(memory.held_bytes_per_token(), 3 * 1000 + 256);
  EXPECT_EQ(MemoryCost(cost.under({.offload_permille = 500}), {}).held_bytes_per_token(), 2500 + 256);
  // Its forward still makes what it then drops.
  EXPECT_EQ(memory.working_bytes(CellKind::kForward, {2, 3}, 1, 1, false), 1000 + 300 + 2 * kIndices);
}

TEST(MemoryCost, AnEmbeddingWhoseRowsHaveANormKeepsThem) {
  CostModel::Options options = tiny_options();
  options.model =
      model::changed(options.model, [](model::Outline& outline) { outline.embedding_norm = true; });
  const CostModel cost(options);
  EXPECT_EQ(MemoryCost(cost, {}).held_bytes_per_token(), 5 * 1000 + 256 + 256);
  // The first of two stages has three of the layers, and the embedding.
  EXPECT_EQ(MemoryCost(cost, {.pp = 2}).held_bytes_per_token(), 3 * 1500 + 256 + 256);
}

TEST(MemoryCost, CreditOfAnotherPolicyIsItsShareOfTheMemory) {
  for (const strategy::MemoryPolicy& policy :
       {strategy::MemoryPolicy{.recompute_permille = 1000}, {.offload_permille = 700}}) {
    const CostModel keep(tiny_options());
    const CostModel saving = keep.under(policy);
    for (const Scheme& scheme : {Scheme{}, Scheme{.pp = 2}}) {
      const int64_t longest = MemoryCost(saving, scheme).max_len_tokens(2);
      const int64_t credit = MemoryCost(keep, scheme).credit_tokens(2);
      EXPECT_EQ(MemoryCost(saving, scheme).credit_of(2, policy, 17), 17);
      EXPECT_LT(MemoryCost(keep, scheme).credit_of(2, policy, 100), 100);
      EXPECT_EQ(MemoryCost(keep, scheme).credit_of(2, policy, longest), credit);
    }
  }
}

TEST(MemoryCost, RecomputedShareOfLayersLiesBetweenNoneAndAll) {
  const CostModel keep(tiny_options());
  int64_t held = MemoryCost(keep, {}).held_bytes_per_token();
  const int64_t saved = MemoryCost(keep, {}).kept_bytes_per_token(1);
  const int64_t border = MemoryCost(keep.under({.recompute_permille = 1000}), {}).kept_bytes_per_token(1);
  for (const int permille : {200, 400, 600, 800, 1000}) {
    const CostModel some = keep.under({.recompute_permille = permille});
    EXPECT_EQ(some.recomputed_blocks(some.program().blocks()), permille / 200) << "of five layers";
    EXPECT_EQ(MemoryCost(some, {}).held_bytes_per_token(), held - (saved - border)) << permille;
    held = MemoryCost(some, {}).held_bytes_per_token();
  }
  // The last layer of five; the first stage has three others.
  const CostModel one = keep.under({.recompute_permille = 200});
  int64_t recomputed = 0;
  for (int64_t block = 1; block <= 5; ++block) recomputed += one.recomputes(block) ? 1 : 0;
  EXPECT_EQ(recomputed, 1);
  EXPECT_EQ(MemoryCost(one, {.pp = 2}).held_bytes_per_token(), 3 * saved + 256)
      << "the first stage keeps all";
}

TEST(MemoryCost, NarrowMastersSaveTheirHalfAndTheCopies) {
  CostModel::Options options = tiny_options();
  options.memory.element_bytes = 2;
  const int64_t wide = MemoryCost(CostModel(options), {}).fixed_bytes(1);
  ASSERT_TRUE(options.memory.narrow_masters());
  EXPECT_FALSE(options.memory.narrow_masters()) << "they are";
  EXPECT_EQ(options.memory.owner_bytes(10, 7), 7 * 14 + 3 * 2);
  const int64_t all = 5 * (64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 96 + 2 * 64) + 2 * 100 * 64 + 64;
  EXPECT_EQ(wide - MemoryCost(CostModel(options), {}).fixed_bytes(1),
            with_small_tensors(all * (6 + 16 + 2) + 4000) - with_small_tensors(all * (6 + 14) + 4000));
  ASSERT_TRUE(options.memory.code_moments());
  EXPECT_EQ(options.memory.owner_bytes_per_parameter, 2 + 4 + 2);
  options.memory.layer_parameters = 7;
  options.memory.master_bytes = 0;
  EXPECT_FALSE(options.memory.narrow_masters()) << "bytes that were published";
}

// A figure that is the largest of all TP degrees is not that of the others.
TEST(MemoryCost, TransientsAreThoseOfTheTpDegree) {
  const strategy::Cluster cluster = strategy::cluster_preset("h100x8", 1);
  const auto options_of = [&](const std::vector<int>& degrees) {
    return analytic_options(model::named_outline("llama-7b"), rates_of(cluster),
                            {.device_bytes = cluster.device_memory_bytes, .element_bytes = 2}, degrees, 8);
  };
  CostModel::Options all = options_of({1, 2, 4, 8});
  const auto bytes = [](const CostModel::Options& options, int tp) {
    return MemoryCost(CostModel(options), {.tp = tp}).bytes_of(1);
  };
  for (const int tp : {1, 2, 4, 8}) EXPECT_EQ(bytes(all, tp), bytes(options_of({tp}), tp)) << tp;
  // A system's other work comes on top.
  CostModel::Options more = all;
  more.memory.transient_bytes_per_token += 1000;
  for (const int tp : {1, 2, 4, 8}) EXPECT_EQ(bytes(more, tp), bytes(all, tp) + 1000) << tp;
}

}  // namespace
}  // namespace sluice::cost
