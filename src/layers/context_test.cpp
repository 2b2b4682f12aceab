// Settings that all layers share: refusals, tables, and counts of experts' loads.
#include "layers/context.h"

#include <gmock/gmock.h>

#include "layers/kv_cache.h"
#include "layers/test_gradients.h"
#include "model/test_families.h"
#include "model/test_outline.h"

namespace sluice::layers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

model::Outline outline_of_contexts() {
  return {.layers = 2, .hidden = 24, .heads = 6, .kv_heads = 2, .head_dim = 8, .ffn_hidden = 30, .vocab = 53};
}

TEST(LayerContext, ATpDegreeThatDoesNotCutTheModelIsRefused) {
  EXPECT_THAT([] { layer_context(outline_of_contexts(), {.tp = 4}, 10, at::dtype(at::kFloat)); },
              ThrowsMessage<base::InputError>(HasSubstr("4")));
}

TEST(LayerContext, SequencesLongerThanTrainedPositionsAreRefused) {
  model::Outline outline = outline_of_contexts();
  outline.positions = 16;
  layer_context(outline, {}, 16, at::dtype(at::kFloat));
  EXPECT_THAT([&] { layer_context(outline, {}, 17, at::dtype(at::kFloat)); },
              ThrowsMessage<base::InputError>(HasSubstr(
                  "up to 17 tokens, but the model has 16 trained positions: lower the context length")));
}

// Windowed layers may turn by another base than the others.
TEST(LayerContext, EachRopeOfTheModelHasATableAndEqualOnesShareIt) {
  model::Outline outline = outline_of_contexts();
  const LayerContext one = layer_context(outline, {}, 10, at::dtype(at::kDouble));
  const ops::RotaryTable* const table = one.rotary->find(outline.rope, 8);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->cos_PD.size(0), 10);
  EXPECT_EQ(one.rotary->find(outline.rope, 4), nullptr);
  outline.window = 4;
  outline.window_rope = model::Rope{.theta = 1234};
  outline.block_types = {{.windowed = true}, {}};
  const LayerContext two = layer_context(outline, {}, 10, at::dtype(at::kDouble));
  EXPECT_NE(two.rotary->find(*outline.window_rope, 8), nullptr);
  EXPECT_NE(two.rotary->find(outline.rope, 8), two.rotary->find(*outline.window_rope, 8));
}

TEST(LayerContext, ALanesExpertsAreItsPartOfTheSlots) {
  LayerContext context = layer_context(outline_of_contexts(), {}, 10, at::dtype(at::kFloat));
  const std::vector<std::vector<int>> slots{{3, 0, 1, 2}, {0, 1, 2, 3}};
  context.experts = {.lanes = 2, .lane = 1, .expert_slots = slots};
  const model::Cut cut = context.cut(0);
  EXPECT_THAT(std::vector(cut.own_experts.begin(), cut.own_experts.end()), ElementsAre(1, 2));
  EXPECT_EQ(cut.expert_lane, 1);
  EXPECT_TRUE(context.cut(-1).own_experts.empty()) << "the model's ends have none";
}

TEST(LayerContext, LowPrecisionIsForItsLayersAlone) {
  LayerContext context = layer_context(outline_of_contexts(), {}, 10, at::dtype(at::kFloat));
  GemmErrors errors;
  const std::vector<int> layers{1};
  context.low_precision = {.format = base::GemmFormat::kInt8, .layers = layers, .errors = &errors};
  EXPECT_EQ(context.low_precision_of(0).format, base::GemmFormat::kAsComputed);
  EXPECT_EQ(context.low_precision_of(1).format, base::GemmFormat::kInt8);
  EXPECT_EQ(context.low_precision_of(0).errors, &errors) << "all layers are measured";
  EXPECT_EQ(context.low_precision_of(-1).errors, nullptr);
}

TEST(ExpertLoad, AssignmentsAndPairsAddUpByLayer) {
  ExpertLoad load{.counts_coactivations = true};
  const at::Tensor id = at::tensor({0, 2, 2, 0, 1, 2}, at::kInt).view({3, 2});
  load.add(1, 1.5, std::vector<int64_t>{2, 1, 3}, id);
  load.add(1, 1.0, std::vector<int64_t>{2, 1, 3}, id);
  EXPECT_EQ(load.sum, 2.5);
  EXPECT_EQ(load.count, 2);
  EXPECT_TRUE(load.assignments[0].empty()) << "a layer without experts";
  EXPECT_THAT(load.assignments[1], ElementsAre(4, 2, 6));
  expect_near(load.coactivations[1],
              2 * at::tensor({2.0, 0.0, 2.0, 0.0, 1.0, 1.0, 2.0, 1.0, 3.0}, at::kDouble).view({3, 3}));
}

// Keys and values of attention, a narrow row of latent attention, states of recurrences.
TEST(KvCache, EachLayerHasTheRoomThatItsKindCounts) {
  const auto cache_of = [](const model::Outline& outline, int tp) {
    const LayerContext context = layer_context(outline, {.tp = tp}, 10, at::dtype(at::kFloat));
    const model::Program program(outline);
    return std::pair{
        KvCache(context, program, program.blocks(), /*rows=*/12, /*texts=*/3, at::dtype(at::kBFloat16)),
        program};
  };
  const auto [cache, program] = cache_of(outline_of_contexts(), 2);
  const CachedKeys keys = cache.of(program.blocks().begin + 1);
  EXPECT_EQ(keys.k_RKD.sizes(), (std::vector<int64_t>{12, 1, 8})) << "a half of the two key heads";
  EXPECT_EQ(keys.v_RKD.sizes(), keys.k_RKD.sizes());
  EXPECT_FALSE(keys.k_RKD.is_same(keys.v_RKD));
  cache.fill_randomly();
  EXPECT_FALSE(keys.k_RKD.equal(keys.v_RKD));

  model::Outline latent = outline_of_contexts();
  latent.latent = {.q_rank = 0, .kv_rank = 10, .unrotated = 6, .rotated = 4, .values = 6};
  latent.kv_heads = latent.heads;
  latent.head_dim = 10;
  const auto [narrow, latent_program] = cache_of(latent, 1);
  const CachedKeys both = narrow.of(latent_program.blocks().begin);
  EXPECT_EQ(both.k_RKD.sizes(), (std::vector<int64_t>{12, 1, 14}));
  EXPECT_TRUE(both.k_RKD.is_same(both.v_RKD)) << "one row is key and value";

  model::Outline recurrent = outline_of_contexts();
  recurrent.recurrent = {
      .key_heads = 2, .value_heads = 4, .key_width = 3, .value_width = 5, .convolution = 4};
  recurrent.block_types = {{.recurrent = true}, {}};
  const auto [states, recurrent_program] = cache_of(recurrent, 2);
  const CachedStates& state = states.states_of(recurrent_program.blocks().begin);
  EXPECT_EQ(state.state_LHKD.sizes(), (std::vector<int64_t>{3, 2, 3, 5}));
  EXPECT_EQ(state.state_LHKD.scalar_type(), at::kFloat) << "sums over a whole sequence are wide";
  EXPECT_EQ(state.last_LMC.sizes(), (std::vector<int64_t>{3, 3, (2 * 2 * 3 + 4 * 5) / 2}));
}

}  // namespace
}  // namespace sluice::layers
