#include "model/wrapped.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "model/config_json.h"
#include "model/hugging_face.h"
#include "model/outline.h"

namespace sluice::model {
namespace {

using base::InputError;
using base::Json;
using testing::AllOf;
using testing::HasSubstr;

template <typename Failure, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Failure& error) {
    return error.what();
  }
  return "";
}

Json text_of(const std::string& type) {
  Json text = {{"model_type", type},     {"hidden_size", 32},        {"intermediate_size", 56},
               {"num_hidden_layers", 3}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
               {"head_dim", 16},         {"vocab_size", 192},        {"max_position_embeddings", 96},
               {"rms_norm_eps", 1e-6},   {"dtype", "bfloat16"}};
  if (type.find("moe") != std::string::npos) {
    text.update({{"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 12}});
    if (type.find("3_5") != std::string::npos) text["shared_expert_intermediate_size"] = 20;
  }
  if (type.find("qwen3_5") != std::string::npos) {
    text.update({{"linear_num_key_heads", 2},
                 {"linear_num_value_heads", 4},
                 {"linear_key_head_dim", 8},
                 {"linear_value_head_dim", 12},
                 {"attn_output_gate", true},
                 {"mtp_num_hidden_layers", 1},
                 {"mamba_ssm_dtype", "float32"}});
  }
  if (type == "gemma4_text") text["hidden_size_per_layer_input"] = 0;
  if (type == "llama4_text")
    text.update({{"intermediate_size_mlp", 56}, {"num_local_experts", 4}, {"num_experts_per_tok", 1}});
  if (type == "mistral4") {
    text.update({{"num_key_value_heads", 4},
                 {"q_lora_rank", 24},
                 {"kv_lora_rank", 16},
                 {"qk_nope_head_dim", 8},
                 {"qk_rope_head_dim", 8},
                 {"v_head_dim", 10},
                 {"n_routed_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 12}});
  }
  if (type.starts_with("qwen3")) {
    text["rope_parameters"] = {{"rope_type", "default"},
                               {"rope_theta", 1e4},
                               {"mrope_section", {4, 2, 2}},
                               {"mrope_interleaved", true}};
  }
  return text;
}

Json whole_of(const Wrapper& wrapper, bool tied) {
  return {{"architectures", {std::string(wrapper.architecture)}},
          {"model_type", std::string(wrapper.model_type)},
          {"image_token_id", 180},
          {"vision_config", {{"depth", 2}, {"hidden_size", 16}}},
          {"projector_hidden_act", "gelu"},
          {"text_config", text_of(std::string(wrapper.text_type))},
          {"tie_word_embeddings", tied}};
}

TEST(Wrapped, TextOfEveryKindIsALanguageModel) {
  for (const Wrapper& wrapper : wrappers()) {
    for (const bool tied : {false, true}) {
      const Outline outline = outline_from_hugging_face(whole_of(wrapper, tied), "config.json");
      EXPECT_EQ(outline.tie_embeddings, tied) << wrapper.model_type << ": the whole model's key counts";
      EXPECT_EQ(outline.layers, 3) << wrapper.model_type;
      EXPECT_EQ(config_json(outline).at("model_type"), std::string(wrapper.family));
      Json alone = language_config(whole_of(wrapper, tied), "config.json");
      EXPECT_EQ(outline_from_hugging_face(alone, "config.json"), outline) << wrapper.model_type;
    }
  }
}

TEST(Wrapped, WhatIsAbsentIsAsTransformersHasIt) {
  Json config = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                 {"model_type", "gemma3"},
                 {"text_config",
                  {{"model_type", "gemma3_text"},
                   {"hidden_size", 2560},
                   {"intermediate_size", 10240},
                   {"num_hidden_layers", 34},
                   {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                   {"sliding_window", 1024}}},
                 {"vision_config", {{"model_type", "siglip_vision_model"}}}};
  const Outline outline = outline_from_hugging_face(config, "config.json");
  EXPECT_EQ(outline.vocab, 262208);
  EXPECT_EQ(outline.heads, 8);
  EXPECT_EQ(outline.kv_heads, 4);
  EXPECT_EQ(outline.head_dim, 256);
  EXPECT_TRUE(outline.tie_embeddings);
  EXPECT_EQ(outline.rope.factor, 8.0);
  EXPECT_EQ(outline.window_rope->theta, 10000.0);
}

TEST(Wrapped, OneKindMayHaveSeveralTexts) {
  Json config = {{"model_type", "mistral3"}, {"text_config", text_of("ministral3")}};
  config["text_config"]["rope_parameters"] = {{"rope_type", "yarn"},
                                              {"factor", 6.0},
                                              {"original_max_position_embeddings", 16},
                                              {"llama_4_scaling_beta", 0.1}};
  const Outline outline = outline_from_hugging_face(config, "config.json");
  EXPECT_EQ(outline.family, "ministral3");
  EXPECT_EQ(config_json(outline).at("model_type"), "ministral3");
  config["text_config"] = text_of("mistral");
  EXPECT_EQ(outline_from_hugging_face(config, "config.json").family, "mistral");
  config["text_config"].erase("model_type");
  EXPECT_EQ(outline_from_hugging_face(config, "config.json").family, "mistral");
  config["text_config"]["model_type"] = "llama";
  EXPECT_THAT(message_of<InputError>([&] { outline_from_hugging_face(config, "config.json"); }),
              AllOf(HasSubstr("model_type is \"llama\""), HasSubstr("mistral or ministral3 or mistral4")));
}

TEST(Wrapped, OthersAreNamed) {
  const auto fault = [](const char* key, const Json& value) {
    Json config = whole_of(wrappers().front(), false);
    config[key] = value;
    return message_of<InputError>([&] { outline_from_hugging_face(config, "config.json"); });
  };
  EXPECT_THAT(fault("model_type", "llava"),
              AllOf(HasSubstr("model_type \"llava\""), HasSubstr("text_config")));
  EXPECT_THAT(fault("architectures", {"Qwen3_5ForSequenceClassification"}), HasSubstr("architectures is"));
  EXPECT_THAT(fault("text_config", "none"), HasSubstr("text_config is \"none\""));
  EXPECT_THAT(fault("text_config", text_of("qwen3_next")),
              HasSubstr("text_config: model_type is \"qwen3_next\""));
  Json odd = text_of("qwen3_5_text");
  odd["logit_scale"] = 2.0;
  EXPECT_THAT(fault("text_config", odd), HasSubstr("logit_scale is 2.0"));
}

// YaRN and LongRoPE derive figures that a file lacks from its number of positions.
TEST(Positions, GrowWithoutChangingTheModel) {
  const auto grown = [](Json rope, Json more = Json::object()) {
    Json config = {{"model_type", "llama"},         {"hidden_size", 32},        {"intermediate_size", 48},
                   {"num_hidden_layers", 2},        {"num_attention_heads", 4}, {"vocab_size", 258},
                   {"max_position_embeddings", 128}};
    config.update(more);
    config[config.contains("rope_parameters") ? "rope_parameters" : "rope_scaling"] = std::move(rope);
    const Outline outline = outline_from_hugging_face(config, "config.json");
    EXPECT_TRUE(set_positions(config, outline, 4096));
    EXPECT_EQ(config.at("max_position_embeddings"), 4096);
    EXPECT_EQ(outline_from_hugging_face(config, "config.json"), outline);
    return config;
  };
  EXPECT_EQ(
      grown({{"type", "yarn"}, {"factor", 2.0}}).at("rope_scaling").at("original_max_position_embeddings"),
      128);
  const Json said = {{"rope_type", "yarn"}, {"factor", 2.0}, {"original_max_position_embeddings", 64}};
  EXPECT_EQ(grown(said).at("rope_scaling"), said) << "nothing is added that is not needed";
  const Json phi = {{"model_type", "phi3"}, {"original_max_position_embeddings", 64}};
  const Json longrope = {{"type", "longrope"}, {"short_factor", {1, 1, 1, 1}}, {"long_factor", {1, 2, 3, 4}}};
  const Json pinned = grown(longrope, phi).at("rope_scaling");
  EXPECT_NEAR(pinned.at("attention_factor").get<double>(), std::sqrt(1 + std::log(2.0) / std::log(64.0)),
              1e-12);
  EXPECT_EQ(grown({{"rope_type", "linear"}, {"factor", 4}}).at("rope_scaling").size(), 2);
}

TEST(Positions, OfAMultimodalModelAreItsTexts) {
  Json config = whole_of(wrappers().front(), false);
  const Outline outline = outline_from_hugging_face(config, "config.json");
  EXPECT_TRUE(set_positions(config, outline, 512));
  EXPECT_EQ(config.at("text_config").at("max_position_embeddings"), 512);
  EXPECT_FALSE(config.contains("max_position_embeddings"));
}

}  // namespace
}  // namespace sluice::model
