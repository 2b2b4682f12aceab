#include "model/counted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "model/config_json.h"
#include "model/hugging_face.h"
#include "model/outline.h"
#include "model/parameter_count.h"
#include "model/parameters.h"
#include "model/program.h"

namespace sluice::model {
namespace {

using base::InputError;
using base::Json;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

Outline counted(const Json& config) { return outline_to_plan_from_hugging_face(config, "config.json"); }

// The keys of published config.json files that determine costs.
Json mixtral() {
  return Json::parse(
      R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu",
    "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "num_experts_per_tok": 2, "num_local_experts": 8, "rms_norm_eps": 1e-05,
    "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "output_router_logits": false,
    "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 32000})");
}

Json qwen3_moe() {
  return Json::parse(R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
    "attention_bias": false, "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 2048, "intermediate_size": 6144, "max_window_layers": 48, "mlp_only_layers": [],
    "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "sliding_window": null, "use_sliding_window": false, "tie_word_embeddings": false,
    "vocab_size": 151936})");
}

Json deepseek_v3() {
  return Json::parse(R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "attention_bias": false, "aux_loss_alpha": 0.001, "ep_size": 1, "first_k_dense_replace": 3,
    "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
    "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256,
    "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128, "num_experts_per_tok": 8,
    "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "quantization_config": {"quant_method": "fp8"},
    "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0}, "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 4,
    "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 129280})");
}

Json unknown_latent() {
  Json config = deepseek_v3();
  config["model_type"] = "bailing_moe_v2";
  config["architectures"] = {"BailingMoeV2ForCausalLM"};
  return config;
}

Json gpt_oss() {
  return Json::parse(
      R"({"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": true,
    "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880,
    "initial_context_length": 4096, "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32,
    "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false,
    "vocab_size": 201088})");
}

struct Published {
  const char* name;
  Json config;
  double parameters_b;
  double active_b;  // embedding and head counted
  double tolerance;
};

// Mixtral: Jiang et al., "Mixtral of Experts", 2024 (47B, 13B active; 46.7B and 12.9B in its announcement).
// Qwen 3: the model's card (30.5B, 3.3B active). DeepSeek-V3: its README_WEIGHTS.md (671B; 36.6B active with
// 0.9B of the head and without 0.9B of the embedding). gpt-oss-20b: "gpt-oss-120b & gpt-oss-20b Model Card",
// table 1 (20.91B; 3.61B active without the embedding's 0.58B).
TEST(Counted, ParametersAreThePublishedOnes) {
  const Published models[] = {{"mixtral", mixtral(), 46.70, 12.88, 0.001},
                              {"qwen3_moe", qwen3_moe(), 30.53, 3.3, 0.02},
                              {"deepseek_v3", deepseek_v3(), 671.0, 37.5, 0.002},
                              {"gpt_oss", gpt_oss(), 20.91, 4.19, 0.001}};
  for (const Published& model : models) {
    const Outline outline = counted(model.config);
    EXPECT_NEAR(static_cast<double>(parameter_count(outline)) / 1e9, model.parameters_b,
                model.parameters_b * model.tolerance)
        << model.name;
    EXPECT_NEAR(static_cast<double>(active_parameter_count(outline)) / 1e9, model.active_b,
                model.active_b * std::max(0.004, model.tolerance))
        << model.name;
  }
}

// The numbers of parameters in transformers' classes, exactly.
TEST(Counted, ParametersAreThoseOfTransformersClasses) {
  EXPECT_EQ(parameter_count(counted(mixtral())), 46'702'792'704);
  EXPECT_EQ(parameter_count(counted(qwen3_moe())), 30'532'122'624);
  EXPECT_EQ(parameter_count(counted(gpt_oss())), 20'914'757'184);
}

TEST(Counted, ReadsBackWhatItWrites) {
  Json sparse = qwen3_moe();
  sparse["decoder_sparse_step"] = 2;
  sparse["mlp_only_layers"] = {1};
  Json biased = deepseek_v3();
  biased["model_type"] = "glm4_moe";
  biased["attention_bias"] = true;
  for (const Json& config : {mixtral(), qwen3_moe(), deepseek_v3(), gpt_oss(), sparse, biased}) {
    const Outline outline = counted(config);
    EXPECT_EQ(counted(config_json(outline)), outline) << config;
  }
}

TEST(Counted, WhatIsComputedIsNotCounted) {
  EXPECT_EQ(counted(mixtral()).family, "mixtral");
  EXPECT_EQ(counted(qwen3_moe()).family, "qwen3_moe");
  EXPECT_EQ(counted(deepseek_v3()).family, "deepseek_v3");
  Json windowed = qwen3_moe();  // a window changes how this class computes
  windowed["use_sliding_window"] = true;
  windowed["sliding_window"] = 4096;
  EXPECT_TRUE(counted(windowed).counted);
}

TEST(Counted, ModelsThatAreComputedAreReadAsBefore) {
  Json config = config_json(named_outline("llama-7b"));
  EXPECT_EQ(counted(config), named_outline("llama-7b"));
  config["attention_bias"] = true;
  const Outline biased = counted(config);
  EXPECT_TRUE(biased.counted);
  EXPECT_EQ(parameter_count(biased) - parameter_count(named_outline("llama-7b")), 32 * 4 * 4096);
}

TEST(Counted, WorkIsOfTheExpertsThatATokenVisits) {
  const Program program(counted(mixtral()));
  const int64_t hidden = 4096, kv = 1024;
  EXPECT_EQ(program.kind_at(1).work().products,
            hidden * (2 * hidden + 2 * kv) + hidden * 8 + 2 * 3 * hidden * 14336);
}

TEST(Counted, WindowsAreReadByLayer) {
  const Outline outline = counted(gpt_oss());
  EXPECT_EQ(outline.window, 128);
  EXPECT_EQ(std::ranges::count_if(outline.block_types, &BlockType::windowed), 12);
  EXPECT_TRUE(outline.block_type(0).windowed);
  EXPECT_FALSE(outline.block_type(1).windowed);
  Json two = gpt_oss();
  two["layer_types"] = {"full_attention"};
  EXPECT_THAT([&] { counted(two); },
              ThrowsMessage<InputError>(HasSubstr("a type for each of the 24 layers")));
}

TEST(Counted, LayersWithoutExpertsAreAKindOfTheirOwn) {
  const Program program(counted(deepseek_v3()));
  EXPECT_EQ(program.kinds().size(), 4U);
  EXPECT_EQ(program.at(3).kind, program.at(1).kind);
  EXPECT_NE(program.at(4).kind, program.at(1).kind);
}

TEST(Counted, TpCutsAreEvenUpToWhatIsWhole) {
  for (const Json& config : {mixtral(), deepseek_v3(), gpt_oss()}) {
    const Program program(counted(config));
    const Kind& kind = program.kind_at(program.head() - 1);
    EXPECT_EQ(kind.tp_fault(8), "");
    EXPECT_LT(largest_shard(kind, 8), largest_shard(kind, 1) / 7);
    EXPECT_LT(kind.bytes({8}, 2).saved, kind.bytes({1}, 2).saved / 2);
  }
}

TEST(Counted, WhatDecidesCostsAndIsNotKnownIsRefusedWithItsValue) {
  Json other = unknown_latent();
  other["ssm_state_size"] = 16;
  EXPECT_THAT([&] { counted(other); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("config.json: ssm_state_size is 16"),
                                              HasSubstr("a key whose costs Sluice does not know"))));
  Json linear = gpt_oss();
  linear["layer_types"] = Json(24, "linear_attention");
  EXPECT_THAT([&] { counted(linear); },
              ThrowsMessage<InputError>(HasSubstr("layer_types[0] is \"linear_attention\"")));
  Json relu = unknown_latent();
  relu["hidden_act"] = "relu2";
  EXPECT_THAT([&] { counted(relu); }, ThrowsMessage<InputError>(HasSubstr("hidden_act is \"relu2\"")));
  Json many = unknown_latent();
  many["num_experts_per_tok"] = 300;
  EXPECT_THAT([&] { counted(many); }, ThrowsMessage<InputError>(HasSubstr("num_experts_per_tok")));
}

TEST(Counted, MultimodalModelsOfOtherKindsAreReferredToTheirTextConfig) {
  const Json kimi = {{"model_type", "kimi_k25"}, {"media_token_id", 255999}, {"text_config", mixtral()}};
  EXPECT_THAT([&] { counted(kimi); },
              ThrowsMessage<InputError>(
                  AllOf(HasSubstr("config.json: the model is multimodal (model_type \"kimi_k25\")"),
                        HasSubstr("qwen3_vl"), HasSubstr("make the object in text_config a config.json"))));
}

TEST(Counted, WhatComputesRefusesItWithAWayOut) {
  EXPECT_THAT([] { outline_from_hugging_face(unknown_latent(), "config.json"); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("config.json: model_type is \"bailing_moe_v2\""),
                                              HasSubstr("sluice plan and simulate count"))));
}

// Counting the published file gives the same as computing it.
TEST(Counted, DeepSeekV3IsComputed) {
  Json config = deepseek_v3();
  config["rope_scaling"]["mscale_all_dim"] = 1.0;
  const Outline computed = outline_from_hugging_face(config, "config.json");
  EXPECT_EQ(computed.family, "deepseek_v3");
  EXPECT_EQ(parameter_count(computed), parameter_table(computed).size());
  // The router's corrections of 58 layers come on top of the counted parameters.
  EXPECT_EQ(parameter_count(computed),
            parameter_count(counted_from_hugging_face(deepseek_v3(), "config.json")) + 58 * 256);
  const double m = 0.1 * std::log(40.0) + 1;
  EXPECT_NEAR(computed.attention_scale, m * m / std::sqrt(192.0), 1e-12);
  EXPECT_EQ(computed.rope.attention_factor, 1.0);
  EXPECT_EQ(outline_from_hugging_face(Json::parse(config_json(computed).dump()), "config.json"), computed);
}

}  // namespace
}  // namespace sluice::model
