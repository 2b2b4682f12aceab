// A model's figures are those of its layers, whatever family it has.
#include "model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>
#include <variant>

#include "base/error.h"
#include "base/json.h"
#include "model/differences.h"
#include "model/hugging_face.h"
#include "model/kind.h"
#include "model/layer.h"
#include "model/outline.h"
#include "model/summary.h"
#include "model/test_families.h"
#include "model/test_outline.h"
#include "model/tuning.h"

namespace sluice::model {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Checks what planning takes of the whole model against every layer.
void expect_of_layers(const Model& model) {
  int64_t latent = 0, states = 0, experts = 0;
  for (int64_t index = 0; index < model.layers(); ++index) {
    const Layer& layer = *model.kinds()[static_cast<size_t>(model.kind_of(index))]->layer();
    bool routed = false;
    for (const Part& part : layer.parts) {
      if (const auto* own = std::get_if<LatentAttention>(&part.mixer)) {
        ++latent;
        EXPECT_EQ(*own, *model.latent());
        EXPECT_EQ(own->heads, model.heads());
      }
      if (const StateHeads* own = states_of(part.mixer)) {
        ++states;
        EXPECT_EQ(own->value_heads, model.states()->value_heads);
        EXPECT_EQ(own->convolution, model.states()->convolution);
        const Recurrent& said = model.outline().recurrent;
        EXPECT_EQ(own->key_heads, said.key_heads);
        EXPECT_EQ(own->value_heads, said.value_heads);
        EXPECT_EQ(own->key_width, said.key_width);
        EXPECT_EQ(own->value_width, said.value_width);
        EXPECT_EQ(own->convolution, said.convolution);
      }
      if (const auto* own = std::get_if<RoutedExperts>(&part.mixer)) {
        routed = true;
        EXPECT_EQ(own->experts.count, model.experts().count);
        EXPECT_EQ(own->experts.hidden, model.experts().hidden);
      }
    }
    experts += routed ? 1 : 0;
    EXPECT_EQ(routed, model.has_experts(index));
  }
  EXPECT_EQ(latent > 0, model.latent() != nullptr);
  EXPECT_EQ(latent > 0, model.outline().latent.kv_rank > 0);
  EXPECT_EQ(states > 0, model.has_states());
  EXPECT_EQ(states > 0, model.outline().recurrent.key_heads > 0);
  EXPECT_EQ(experts > 0, model.experts().count > 0);
}

TEST(Model, FiguresOfPublishedModelsAreThoseOfTheirLayers) {
  const std::filesystem::path root = SLUICE_SOURCE_DIR;
  const base::Json shipped = base::read_json(root / "data/models.json");
  for (const auto& [name, config] : shipped.items()) {
    SCOPED_TRACE(name);
    expect_of_layers(model_to_plan_from_hugging_face(config, name));
  }
  for (const auto& folder : std::filesystem::directory_iterator(root / "tests/data/parity")) {
    const std::filesystem::path config = folder.path() / "config.json";
    if (!std::filesystem::exists(config)) continue;
    SCOPED_TRACE(config.string());
    expect_of_layers(model_to_plan_from_hugging_face(base::read_json(config), config.string()));
  }
}

TEST(Model, FiguresOfFamiliesWithOwnLayersAreThoseOfTheirLayers) {
  const Outline like = test_outline(6);
  for (const Outline& outline :
       {lfm2_outline(like), falcon_h1_outline(like), afmoe_outline(like), gemma4_outline(like),
        gemma4_e_outline(like), llama4_outline(like), phimoe_outline(like), kimi_linear_outline(like)})
    expect_of_layers(outline);
}

TEST(Model, EqualLayersAreOneKind) {
  Outline outline = test_outline(5);
  EXPECT_EQ(Model(outline).kinds().size(), 3U);
  outline.window = 7;
  outline.block_types = {{.windowed = true}, {}, {.windowed = true}, {}, {}};
  const Model model(outline);
  EXPECT_EQ(model.kinds().size(), 4U);
  std::vector<int> kinds;
  for (int64_t layer = 0; layer < model.layers(); ++layer) kinds.push_back(model.kind_of(layer));
  EXPECT_THAT(kinds, ElementsAre(1, 2, 1, 2, 2));
  EXPECT_NE(model.kinds().front()->embedding(), nullptr);
  EXPECT_NE(model.kinds().back()->head(), nullptr);
}

TEST(Model, PlanningTakesTheWidestOfItsWindows) {
  const Model model = two_windows_outline(test_outline(6));
  EXPECT_THAT(model.windows(), ElementsAre(5, 11));
  EXPECT_EQ(model.window(), 11);
  EXPECT_THAT(Model(test_outline()).windows(), IsEmpty());
  EXPECT_EQ(Model(test_outline()).window(), 0);
}

TEST(Model, TuningMakesAnotherModelAndLeavesTheFirst) {
  const Model plain = test_outline();
  const Model tuned = adapted(plain, {.rank = 2, .alpha = 4, .targets = {"q_proj"}});
  EXPECT_EQ(plain.lora().rank, 0);
  EXPECT_EQ(tuned.lora().rank, 2);
  EXPECT_NE(plain, tuned);
  EXPECT_EQ(untuned(tuned), plain);
  EXPECT_EQ(adapted(plain, {}), plain);
  EXPECT_EQ(with_rank(tuned, 1000).lora().rank, 1000);
}

TEST(Model, ThreadsMakeItsLayersOnce) {
  const Model model = test_outline(8);
  std::vector<const Kind*> seen(6);
  std::vector<std::thread> threads;
  for (const Kind*& kind : seen) threads.emplace_back([&] { kind = Model(model).kinds()[1].get(); });
  for (std::thread& thread : threads) thread.join();
  for (const Kind* kind : seen) EXPECT_EQ(kind, seen.front());
}

TEST(Model, DifferencesNameSizes) {
  Outline outline = test_outline();
  outline.hidden *= 2;
  outline.vocab = 9;
  const std::vector<SizeDifference> found = size_differences(test_outline(), outline);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_STREQ(found[0].name, "hidden");
  EXPECT_EQ(found[1].second, 9);
  Outline renamed = test_outline();
  renamed.family = "mistral";
  EXPECT_NE(Model(renamed), Model(test_outline()));
  EXPECT_TRUE(compute_alike(renamed, test_outline()));
  renamed.norm_eps = 1e-6;
  EXPECT_FALSE(compute_alike(renamed, test_outline()));
  EXPECT_TRUE(cost_alike(renamed, test_outline()));
  renamed.window = 3;
  EXPECT_FALSE(cost_alike(renamed, test_outline()));
}

TEST(Model, SummaryNamesItsParts) {
  EXPECT_EQ(size_text(test_outline()), "4 layers, hidden 128");
  EXPECT_THAT(summary(named_model("llama-7b")), testing::HasSubstr("32 layers, hidden 4096, heads 32"));
  EXPECT_THAT(summary(kimi_linear_outline(test_outline(6))), testing::HasSubstr("latent vector"));
  EXPECT_THROW(named_model("llama-8b"), base::InputError);
}

TEST(Model, OtherVocabulariesKeepEverythingElse) {
  const Model model = with_vocab(test_outline(), 4096);
  EXPECT_EQ(model.vocab(), 4096);
  EXPECT_EQ(size_differences(model, test_outline()).size(), 1U);
}

}  // namespace
}  // namespace sluice::model
