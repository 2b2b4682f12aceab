#include "model/config_json.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/json.h"
#include "model/hugging_face.h"
#include "model/test_outline.h"
#include "model/test_tuning.h"

namespace sluice::model {
namespace {

using base::Json;

Outline outline_of_file(const Json& config) { return outline_from_hugging_face(config, "config.json"); }

Json qwen3_file() {
  return {{"model_type", "qwen3"},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 100},
          {"eos_token_id", {2, 5}},
          {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}}},
          {"max_position_embeddings", 4096}};
}

TEST(ConfigJson, IsTheFileThatTheOutlineWasReadFrom) {
  Json expected = qwen3_file();
  expected["architectures"] = {"Qwen3ForCausalLM"};
  EXPECT_EQ(config_json(outline_of_file(qwen3_file())), expected);
}

TEST(ConfigJson, OfATunedModelIsThatOfTheModel) {
  Outline outline = outline_of_file(qwen3_file());
  adapt(outline, {.rank = 4, .alpha = 8, .targets = {"q_proj"}});
  EXPECT_EQ(config_json(outline), config_json(outline_of_file(qwen3_file())));
}

TEST(ConfigJson, OfAnOutlineThatWasChangedSinceIsRefused) {
  Outline outline = outline_of_file(qwen3_file());
  outline.layers = 2;
  EXPECT_THROW(config_json(outline), base::AssertionError);
  Outline other = test_outline();
  other.qk_norm = QkNorm::kEachHead;  // no LLaMA has these norms
  EXPECT_THROW(config_json(other), base::AssertionError);
}

// A model that training refuses and planning counts stays counted, even if a family has its model_type.
TEST(ConfigJson, OfACountedModelSaysSo) {
  Json config = qwen3_file();
  config["attention_bias"] = true;
  const Outline outline = outline_to_plan_from_hugging_face(config, "config.json");
  EXPECT_TRUE(outline.counted);
  EXPECT_EQ(config_json(outline).at("computed"), false);
  EXPECT_EQ(outline_to_plan_from_hugging_face(config_json(outline), "config.json"), outline);
}

TEST(ConfigJson, OfALlamaWithoutOneSaysEveryRope) {
  const Rope ropes[] = {
      {.theta = 12345.5},
      {.scaling = RopeScaling::kLinear, .factor = 2.5},
      {.theta = 500000,
       .scaling = RopeScaling::kLlama3,
       .factor = 8,
       .low_freq_factor = 1.5,
       .high_freq_factor = 3.5,
       .original_max_position_embeddings = 1024},
      {.scaling = RopeScaling::kYarn, .factor = 4, .original_max_position_embeddings = 2048},
      {.scaling = RopeScaling::kYarn,
       .factor = 4,
       .original_max_position_embeddings = 2048,
       .beta_fast = 16,
       .beta_slow = 2,
       .attention_factor = 1.25},
  };
  for (const Rope& rope : ropes) {
    Outline outline = test_outline();
    outline.head_dim = 10;
    outline.norm_eps = 1.0 / 3;
    outline.rope = rope;
    const Json config = config_json(outline);
    const Outline back = outline_of_file(Json::parse(config.dump()));
    EXPECT_EQ(back, outline);
    EXPECT_EQ(config_json(back), config);
  }
}

}  // namespace
}  // namespace sluice::model
