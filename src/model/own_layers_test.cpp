// Families whose readers make layers themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "model/hugging_face.h"
#include "model/layer.h"
#include "model/layer_of.h"
#include "model/parameters.h"
#include "model/tuning.h"

namespace sluice::model {
namespace {

using base::Json;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Shape read_own(const Json& config) { return shape_from_hugging_face(config, "config.json"); }

Json tiny(const std::string& type, const Json& others = nullptr) {
  Json config = {{"model_type", type},       {"hidden_size", 64},       {"num_hidden_layers", 4},
                 {"vocab_size", 96},         {"intermediate_size", 80}, {"num_attention_heads", 4},
                 {"num_key_value_heads", 2}, {"head_dim", 16}};
  if (!others.is_null()) config.update(others);
  return config;
}

void expect_own_fault(const Json& config, const std::string& fault) {
  EXPECT_THAT([&] { read_own(config); }, testing::ThrowsMessage<base::InputError>(HasSubstr(fault)))
      << config;
}
void expect_own_fault(Json config, const char* key, const Json& value, const std::string& fault) {
  config[key] = value;
  expect_own_fault(config, fault);
}

Layer layer_at(const Shape& shape, int64_t layer) { return layer_of(shape, shape.block_type(layer)); }
template <typename Mixer>
Mixer mixer_at(const Shape& shape, int64_t layer, size_t part = 0) {
  return std::get<Mixer>(layer_at(shape, layer).parts[part].mixer);
}

// Names with shapes, as "self_attn.q_proj.weight[64,64]".
std::vector<std::string> tensors_at(const Shape& shape, int64_t layer) {
  std::vector<std::string> names;
  const std::string path = "layers." + std::to_string(layer) + ".";
  for (const Bucket& bucket : parameter_table(shape).buckets) {
    const size_t begin = bucket.path.find(path);
    if (begin == std::string::npos) continue;
    for (const Parameter& parameter : bucket.parameters) {
      for (const HuggingFaceTensor& tensor : hugging_face_tensors(bucket, parameter))
        names.push_back(tensor.name.substr(bucket.path.size()) + base::json_text(tensor.shape));
    }
  }
  return names;
}

Json growing_rope(double beta) {
  return {{"rope_type", "yarn"}, {"factor", 8.0},       {"original_max_position_embeddings", 16},
          {"mscale", 1.0},       {"rope_theta", 1e6},   {"max_position_embeddings", 128},
          {"type", "yarn"},      {"mscale_all_dim", 1}, {"llama_4_scaling_beta", beta}};
}

TEST(OwnLayers, QueriesOfMinistral3GrowAsTheFileSays) {
  const Json config = tiny("ministral3", {{"rope_parameters", growing_rope(0.3)}});
  const Shape shape = read_own(config);
  const QueryGrowth expected{.beta = 0.3, .positions = 16};
  EXPECT_EQ(mixer_at<Attention>(shape, 3).growth, expected);
  EXPECT_EQ(shape.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(mixer_at<Attention>(read_own(tiny("ministral3")), 0).growth.beta, 0);
  expect_own_fault(config, "rope_parameters", growing_rope(-1), "'llama_4_scaling_beta' is -1");
  Json without = growing_rope(0.3);
  without.erase("original_max_position_embeddings");
  expect_own_fault(config, "rope_parameters", without, "original_max_position_embeddings");
  Json grows = growing_rope(0.3);
  grows.erase("max_position_embeddings");
  expect_own_fault(tiny("ministral"), "rope_parameters", grows, "llama_4_scaling_beta is 0.3");
}

TEST(OwnLayers, Mistral4ScoresBySoftmax) {
  const Shape shape = read_own(tiny("mistral4", {{"num_key_value_heads", 4},
                                                 {"q_lora_rank", 24},
                                                 {"kv_lora_rank", 16},
                                                 {"qk_nope_head_dim", 8},
                                                 {"qk_rope_head_dim", 8},
                                                 {"v_head_dim", 10},
                                                 {"n_routed_experts", 8},
                                                 {"num_experts_per_tok", 2},
                                                 {"moe_intermediate_size", 24},
                                                 {"rope_parameters", growing_rope(0.1)}}));
  EXPECT_FALSE(shape.experts.sigmoid || shape.experts.corrected);
  EXPECT_TRUE(shape.experts.normalised);
  EXPECT_EQ(mixer_at<LatentAttention>(shape, 0).growth.beta, 0.1);
  EXPECT_GT(shape.attention_scale, 0);
}

TEST(OwnLayers, ErnieHasExpertsInSomeLayersAndItsCorrectionsInARow) {
  const Json config = tiny("ernie4_5_moe", {{"moe_num_experts", 6},
                                            {"moe_k", 2},
                                            {"moe_intermediate_size", 24},
                                            {"moe_layer_start_index", 1},
                                            {"moe_layer_end_index", 2}});
  const Shape shape = read_own(config);
  EXPECT_EQ(mixer_at<Attention>(shape, 0).turning, Turning::kNeighbours);
  EXPECT_TRUE(std::holds_alternative<Mlp>(layer_at(shape, 0).parts[1].mixer));
  EXPECT_TRUE(std::holds_alternative<RoutedExperts>(layer_at(shape, 2).parts[1].mixer));
  EXPECT_TRUE(std::holds_alternative<Mlp>(layer_at(shape, 3).parts[1].mixer));
  EXPECT_THAT(tensors_at(shape, 1), Contains("mlp.moe_statics.e_score_correction_bias[1,6]"));
  expect_own_fault(config, "use_bias", true, "use_bias is true");
  expect_own_fault(config, "moe_k", 7, "'moe_k' is 7");
  EXPECT_TRUE(read_own(tiny("ernie4_5", {{"use_bias", true}})).mlp_bias);
}

TEST(OwnLayers, Glm4HasFourNorms) {
  const Shape shape = read_own(tiny("glm4"));
  EXPECT_EQ(shape.rotated, 8);
  const std::vector<std::string> tensors = tensors_at(shape, 0);
  for (const char* norm : {"input_layernorm.weight[64]", "post_self_attn_layernorm.weight[64]",
                           "post_attention_layernorm.weight[64]", "post_mlp_layernorm.weight[64]"})
    EXPECT_THAT(tensors, Contains(norm));
  EXPECT_THAT(tensors, Contains("self_attn.k_proj.bias[32]"));
  EXPECT_THAT(tensors, Contains("mlp.gate_up_proj.weight[160,64]"));
}

TEST(OwnLayers, CohereHasOneNormForAttentionAndTheMlpBesideIt) {
  const Json config = tiny("cohere2", {{"logit_scale", 0.25}});
  const Shape shape = read_own(config);
  const Layer windowed = layer_at(shape, 0), full = layer_at(shape, 3);
  EXPECT_TRUE(windowed.parts[1].beside);
  EXPECT_EQ(windowed.parts[1].before, windowed.parts[0].before);
  EXPECT_THAT(tensors_at(shape, 0), testing::UnorderedElementsAre(
                                        "input_layernorm.weight[64]", "self_attn.q_proj.weight[64,64]",
                                        "self_attn.k_proj.weight[32,64]", "self_attn.v_proj.weight[32,64]",
                                        "self_attn.o_proj.weight[64,64]", "mlp.gate_proj.weight[80,64]",
                                        "mlp.up_proj.weight[80,64]", "mlp.down_proj.weight[64,80]"));
  EXPECT_TRUE(mixer_at<Attention>(shape, 0).rope.has_value());
  EXPECT_FALSE(std::get<Attention>(full.parts[0].mixer).rope.has_value());
  EXPECT_EQ(shape.logit_divisor, 4);
  expect_own_fault(config, "sliding_window", nullptr, "sliding_window is null");
  expect_own_fault(config, "use_qk_norm", true, "use_qk_norm is true");
}

TEST(OwnLayers, HunyuanNormsHeadsBehindTheirRotationWhoseBaseAlphaStretches) {
  const Json config =
      tiny("hunyuan_v1_moe", {{"num_experts", 4},
                              {"moe_topk", 2},
                              {"rope_theta", 1e4},
                              {"rope_scaling", {{"type", "dynamic"}, {"alpha", 50.0}, {"factor", 1.0}}}});
  const Shape shape = read_own(config);
  EXPECT_TRUE(mixer_at<Attention>(shape, 0).head_norm_style.behind_rotation);
  EXPECT_NEAR(shape.rope.theta, 1e4 * std::pow(50.0, 16.0 / 14), 1e-6);
  EXPECT_EQ(shape.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(shape.experts.shared_hidden, 80);
  EXPECT_THAT(tensors_at(shape, 0), Contains("self_attn.query_layernorm.weight[16]"));
  expect_own_fault(config, "rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}},
                   "rope_type is \"dynamic\"");
  expect_own_fault(config, "moe_topk", {1, 2}, "moe_topk");
  expect_own_fault(config, "use_cla", true, "use_cla is true");
}

TEST(OwnLayers, NanochatHasNoWeightsOfNorms) {
  const Shape shape = read_own(tiny("nanochat", {{"hidden_act", "relu2"}}));
  EXPECT_THAT(tensors_at(shape, 0), testing::UnorderedElementsAre(
                                        "self_attn.q_proj.weight[64,64]", "self_attn.k_proj.weight[32,64]",
                                        "self_attn.v_proj.weight[32,64]", "self_attn.o_proj.weight[64,64]",
                                        "mlp.fc1.weight[80,64]", "mlp.fc2.weight[64,80]"));
  EXPECT_TRUE(embedding_of(shape).norm.has_value());
  EXPECT_FALSE(embedding_of(read_own(tiny("arcee"))).norm.has_value());
  EXPECT_EQ(shape.logit_cap, 15);
  expect_own_fault(tiny("nanochat"), "hidden_act", "silu", "hidden_act is \"silu\"");
}

TEST(OwnLayers, AfmoeHasGatesApartAndNormsAroundExperts) {
  const Json config =
      tiny("afmoe", {{"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 24}});
  const Shape shape = read_own(config);
  const std::vector<std::string> tensors = tensors_at(shape, 1);
  for (const char* tensor :
       {"self_attn.gate_proj.weight[64,64]", "self_attn.q_proj.weight[64,64]",
        "post_mlp_layernorm.weight[64]", "mlp.expert_bias[4]", "mlp.router.gate.weight[4,64]"})
    EXPECT_THAT(tensors, Contains(tensor));
  EXPECT_TRUE(layer_at(shape, 1).parts[1].behind.has_value());
  EXPECT_FALSE(mixer_at<Attention>(shape, 3).rope.has_value());
  EXPECT_EQ(read_own(tiny("afmoe", {{"num_experts", 4},
                                    {"num_experts_per_tok", 2},
                                    {"moe_intermediate_size", 24},
                                    {"mup_enabled", true}}))
                .embedding_scale,
            8);
  expect_own_fault(config, "attention_bias", true, "attention_bias is true");
}

Json tiny_gemma4() {
  return tiny("gemma4_text", {{"hidden_size_per_layer_input", 0},
                              {"global_head_dim", 24},
                              {"num_global_key_value_heads", 1},
                              {"attention_k_eq_v", true},
                              {"enable_moe_block", true},
                              {"num_experts", 6},
                              {"top_k_experts", 2},
                              {"moe_intermediate_size", 12}});
}

TEST(OwnLayers, Gemma4HasTwoWidthsOfHeads) {
  const Shape shape = read_own(tiny_gemma4());
  EXPECT_EQ(shape.window, 512);
  const auto windowed = mixer_at<Attention>(shape, 0), full = mixer_at<Attention>(shape, 3);
  EXPECT_EQ(std::tuple(windowed.window, windowed.head_dim, windowed.kv_heads, windowed.keys_are_values),
            std::tuple(512, 16, 2, false));
  EXPECT_EQ(std::tuple(full.window, full.head_dim, full.kv_heads, full.keys_are_values),
            std::tuple(0, 24, 1, true));
  EXPECT_TRUE(windowed.normed_values && full.normed_values);
  EXPECT_EQ(windowed.rope->theta, 1e4);
  EXPECT_EQ(std::tuple(full.rope->theta, full.rope->scaling, full.rope->proportion, full.rotated),
            std::tuple(1e6, RopeScaling::kProportional, 0.25, 24));
  EXPECT_THAT(tensors_at(shape, 0), Contains("self_attn.v_proj.weight[32,64]"));
  EXPECT_THAT(tensors_at(shape, 3), Not(Contains(HasSubstr("v_proj"))));
  EXPECT_THAT(tensors_at(shape, 3), Contains("self_attn.o_proj.weight[64,96]"));
  Json by_layer = tiny_gemma4();
  for (const char* key : {"global_head_dim", "num_global_key_value_heads"}) by_layer.erase(key);
  by_layer["per_layer_config"] = {{"03", {{"head_dim", 24}, {"num_key_value_heads", 1}}}};
  EXPECT_EQ(mixer_at<Attention>(read_own(by_layer), 3), full);
  EXPECT_EQ(mixer_at<Attention>(read_own(by_layer), 0), windowed);
}

TEST(OwnLayers, Gemma4HasExpertsBesideTheMlpAndANumberForEachLayer) {
  const Shape shape = read_own(tiny_gemma4());
  const Layer layer = layer_at(shape, 1);
  ASSERT_EQ(layer.parts.size(), 3);
  EXPECT_TRUE(layer.parts[2].beside && layer.parts[2].own_norm && layer.joint);
  EXPECT_EQ(std::get<RoutedExperts>(layer.parts[2].mixer).router_norm_eps, 1e-6);
  const std::vector<std::string> tensors = tensors_at(shape, 1);
  for (const char* tensor :
       {"layer_scalar[1]", "router.proj.weight[6,64]", "router.scale[64]", "router.per_expert_scale[6]",
        "experts.gate_up_proj[6,24,64]", "experts.down_proj[6,64,12]", "mlp.gate_proj.weight[80,64]",
        "pre_feedforward_layernorm.weight[64]", "pre_feedforward_layernorm_2.weight[64]",
        "post_feedforward_layernorm.weight[64]", "post_feedforward_layernorm_1.weight[64]",
        "post_feedforward_layernorm_2.weight[64]"})
    EXPECT_THAT(tensors, Contains(tensor));
  EXPECT_TRUE(is_tuned(shape) == false);
  for (const Bucket& bucket : parameter_table(shape).buckets) {
    for (const Parameter& parameter : bucket.parameters)
      EXPECT_EQ(parameter.trained, parameter.role != "layer_scalar") << parameter.name;
  }
}

TEST(OwnLayers, Gemma4WithoutExpertsHasAnMlp) {
  Json config = tiny_gemma4();
  config["enable_moe_block"] = false;
  const Layer layer = layer_at(read_own(config), 0);
  EXPECT_EQ(layer.parts.size(), 2);
  EXPECT_TRUE(layer.parts[1].behind && !layer.joint && layer.scalar);
}

TEST(OwnLayers, Gemma4RefusesOtherModels) {
  const Json config = tiny_gemma4();
  expect_own_fault(config, "hidden_size_per_layer_input", 32, "hidden_size_per_layer_input is 32");
  Json absent = config;
  absent.erase("hidden_size_per_layer_input");
  expect_own_fault(absent, "hidden_size_per_layer_input is 256");
  expect_own_fault(config, "num_kv_shared_layers", 2, "num_kv_shared_layers is 2");
  expect_own_fault(config, "use_bidirectional_attention", "all", "use_bidirectional_attention is \"all\"");
  expect_own_fault(config, "sliding_window", nullptr, "sliding_window is null");
  expect_own_fault(config, "top_k_experts", 7, "'top_k_experts' is 7");
  expect_own_fault(config, "per_layer_config", {{"9", {{"head_dim", 24}}}}, "per_layer_config is \"9\"");
  expect_own_fault(config, "per_layer_config", {{"1", {{"head_dim", 24}}}}, "per_layer_config");
  expect_own_fault(config, "per_layer_config", {{"3", {{"sliding_window", 24}}}}, "sliding_window is 24");
}

Json tiny_kimi() {
  return tiny("kimi_linear", {{"num_key_value_heads", 4},
                              {"head_dim", 8},
                              {"kv_lora_rank", 16},
                              {"qk_nope_head_dim", 12},
                              {"qk_rope_head_dim", 8},
                              {"v_head_dim", 10},
                              {"num_experts", 8},
                              {"num_experts_per_token", 2},
                              {"num_shared_experts", 1},
                              {"moe_renormalize", true},
                              {"num_expert_group", 2},
                              {"topk_group", 1},
                              {"moe_intermediate_size", 12},
                              {"linear_attn_config",
                               {{"full_attn_layers", {4}},
                                {"kda_layers", {1, 2, 3}},
                                {"num_heads", 4},
                                {"head_dim", 8},
                                {"short_conv_kernel_size", 3}}}});
}

TEST(OwnLayers, KimiLinearIsReadUnderPublishedNames) {
  const Shape shape = read_own(tiny_kimi());
  const auto kda = mixer_at<Kda>(shape, 0);
  EXPECT_EQ(std::tuple(kda.heads.value_heads, kda.heads.key_width, kda.heads.convolution, kda.rank),
            std::tuple(4, 8, 3, 8));
  const auto latent = mixer_at<LatentAttention>(shape, 3);
  EXPECT_EQ(std::tuple(latent.q_rank, latent.kv_rank, latent.rope.has_value()), std::tuple(0, 16, false));
  EXPECT_EQ(std::tuple(shape.experts.groups, shape.experts.factor), std::tuple(2, 2.446));
  EXPECT_TRUE(std::holds_alternative<Mlp>(layer_at(shape, 0).parts[1].mixer));
  EXPECT_TRUE(std::holds_alternative<RoutedExperts>(layer_at(shape, 1).parts[1].mixer));
  for (const char* tensor :
       {"self_attn.A_log[1,1,4,1]", "self_attn.dt_bias[32]", "self_attn.f_a_proj.weight[8,64]",
        "self_attn.f_b_proj.weight[32,8]", "self_attn.g_b_proj.weight[32,8]", "self_attn.b_proj.weight[4,64]",
        "self_attn.k_conv1d.weight[32,1,3]", "self_attn.o_norm.weight[8]"})
    EXPECT_THAT(tensors_at(shape, 0), Contains(tensor));
  EXPECT_THAT(tensors_at(shape, 3), Contains("self_attn.q_proj.weight[80,64]"));
  EXPECT_THAT(tensors_at(shape, 1), Contains("block_sparse_moe.gate.e_score_correction_bias[8]"));
}

TEST(OwnLayers, KimiLinearRefusesOtherModels) {
  const Json config = tiny_kimi();
  expect_own_fault(config, "q_lora_rank", 24, "q_lora_rank is 24");
  expect_own_fault(config, "mla_use_nope", false, "mla_use_nope is false");
  Json lists = config;
  lists["linear_attn_config"]["kda_layers"] = {1, 2, 2};
  expect_own_fault(lists, "kda_layers is 2");
  lists["linear_attn_config"]["kda_layers"] = {1, 2};
  expect_own_fault(lists, "lists with layer 3");
  lists["linear_attn_config"]["kda_layers"] = {0};
  expect_own_fault(lists, "kda_layers is 0");
}

TEST(OwnLayers, ApertusHasXielu) {
  const Shape shape = read_own(tiny("apertus"));
  EXPECT_EQ(shape.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(mixer_at<Mlp>(shape, 0, 1).gate.activation, Activation::kXielu);
  EXPECT_THAT(tensors_at(shape, 0), Contains("mlp.act_fn.alpha_p[1]"));
  EXPECT_THAT(tensors_at(shape, 0), Contains("feedforward_layernorm.weight[64]"));
  expect_own_fault(tiny("apertus"), "hidden_act", "silu", "hidden_act is \"silu\"");
}

TEST(OwnLayers, LfmConvolvesWhereTheFileSaysSo) {
  Json config = tiny("lfm2", {{"full_attn_idxs", {1, 3}}, {"block_multiple_of", 8}, {"conv_bias", true}});
  config.erase("head_dim");
  const Shape shape = read_own(config);
  EXPECT_EQ(shape.ffn_hidden, 56);  // 53, two thirds of 80, rounded up
  EXPECT_EQ(mixer_at<ShortConvolution>(shape, 0).heads.convolution, 3);
  EXPECT_EQ(mixer_at<Attention>(shape, 1).head_norm, QkNorm::kEachHead);
  EXPECT_THAT(tensors_at(shape, 0),
              testing::UnorderedElementsAre(
                  "operator_norm.weight[64]", "conv.in_proj.weight[192,64]", "conv.in_proj.bias[192]",
                  "conv.conv.weight[64,1,3]", "conv.conv.bias[64]", "conv.out_proj.weight[64,64]",
                  "conv.out_proj.bias[64]", "ffn_norm.weight[64]", "feed_forward.w1.weight[56,64]",
                  "feed_forward.w3.weight[56,64]", "feed_forward.w2.weight[64,56]"));
  Json listed = config;
  listed["layer_types"] = {"conv", "conv", "conv", "full_attention"};
  EXPECT_TRUE(read_own(listed).block_type(1).recurrent);
  expect_own_fault(listed, "layer_types", {"conv", "ssm", "conv", "conv"}, "layer_types[1] is \"ssm\"");
  expect_own_fault(config, "full_attn_idxs", 1, "full_attn_idxs is 1");
  expect_own_fault(config, "conv_L_cache", 1, "'conv_L_cache' is 1");
  Json all = config;
  all.erase("full_attn_idxs");
  EXPECT_EQ(read_own(all).recurrent.key_heads, 0);
}

TEST(OwnLayers, LfmsExpertsHaveAFloorAndRememberLoadsWhereARunAsksForIt) {
  Json config = tiny("lfm2_moe", {{"layer_types", {"conv", "full_attention", "conv", "conv"}},
                                  {"num_experts", 4},
                                  {"num_experts_per_tok", 2},
                                  {"moe_intermediate_size", 24}});
  Shape shape = read_own(config);
  EXPECT_EQ(mixer_at<RoutedExperts>(shape, 2, 1).floor, 1e-6);
  EXPECT_TRUE(std::holds_alternative<Mlp>(layer_at(shape, 1).parts[1].mixer));
  const auto loads = testing::Contains(testing::HasSubstr("loads"));
  EXPECT_THAT(tensors_at(shape, 2), Not(loads));
  shape.experts.remembers_loads = true;
  EXPECT_THAT(tensors_at(shape, 2), loads);
}

TEST(OwnLayers, BambaListsItsLayersOfAttention) {
  const Json config =
      tiny("bamba", {{"attn_layer_indices", {2}}, {"mamba_n_heads", 8}, {"mamba_d_state", 8}});
  const Shape shape = read_own(config);
  EXPECT_FALSE(shape.block_type(2).recurrent);
  EXPECT_TRUE(shape.block_type(3).recurrent);
  EXPECT_EQ(shape.rotated, 8);
  EXPECT_THAT(tensors_at(shape, 0), Contains("pre_ff_layernorm.weight[64]"));
  expect_own_fault(config, "attn_layer_indices", {4}, "attn_layer_indices is 4");
  expect_own_fault(config, "attn_layer_indices", 2, "a list of layers");
}

TEST(OwnLayers, FalconHasThreePartsWithFactors) {
  const Json config = tiny("falcon_h1", {{"mamba_n_heads", 8},
                                         {"mamba_d_ssm", 96},
                                         {"mamba_d_state", 8},
                                         {"key_multiplier", 0.5},
                                         {"attention_in_multiplier", 3},
                                         {"ssm_in_multiplier", 2},
                                         {"ssm_multipliers", {1, 2, 3, 4, 5}},
                                         {"mlp_multipliers", {0.25, 0.75}},
                                         {"lm_head_multiplier", 0.125}});
  const Shape shape = read_own(config);
  const Layer layer = layer_at(shape, 0);
  ASSERT_EQ(layer.parts.size(), 3U);
  EXPECT_THAT(layer.parts[0].factors.front().of_groups, testing::ElementsAre(2, 4, 6, 8, 10));
  EXPECT_THAT(layer.parts[1].factors.front().of_groups, testing::ElementsAre(3, 1.5, 3));
  EXPECT_TRUE(layer.parts[1].beside);
  EXPECT_EQ(layer.parts[2].scale, 0.75);
  EXPECT_EQ(shape.recurrent.value_width, 12);
  EXPECT_EQ(shape.logit_divisor, 8);
  const std::vector<std::string> tensors = tensors_at(shape, 0);
  EXPECT_THAT(tensors, Contains("mamba.out_proj.weight[64,96]"));
  EXPECT_THAT(tensors, Contains("pre_ff_layernorm.weight[64]"));
  EXPECT_THAT(tensors, Not(Contains(HasSubstr("mamba.norm"))));
  expect_own_fault(config, "mamba_rms_norm", true, "mamba_rms_norm is true");
  expect_own_fault(config, "mamba_d_ssm", 100, "mamba_n_heads is 8");
  expect_own_fault(config, "ssm_multipliers", {1, 2}, "a list of 5 factors");
}

TEST(OwnLayers, NemotronsExpertsHaveNoGate) {
  const Json config = tiny("nemotron_h", {{"layers_block_type", {"mamba", "moe", "attention", "E"}},
                                          {"n_routed_experts", 4},
                                          {"num_experts_per_tok", 2},
                                          {"moe_intermediate_size", 24},
                                          {"moe_shared_expert_intermediate_size", 40},
                                          {"mamba_num_heads", 8},
                                          {"n_groups", 2}});
  const Shape shape = read_own(config);
  const std::vector<std::string> tensors = tensors_at(shape, 1);
  for (const char* tensor :
       {"norm.weight[64]", "mixer.gate.weight[4,64]", "mixer.experts.3.up_proj.weight[24,64]",
        "mixer.experts.0.down_proj.weight[64,24]", "mixer.shared_experts.up_proj.weight[40,64]",
        "mixer.gate.e_score_correction_bias[4]"})
    EXPECT_THAT(tensors, Contains(tensor));
  EXPECT_THAT(tensors, Not(Contains(HasSubstr("gate_proj"))));
  expect_own_fault(config, "moe_latent_size", 16, "moe_latent_size is 16");
  expect_own_fault(config, "mlp_bias", true, "mlp_bias is true");
  expect_own_fault(config, "layers_block_type", {"mamba", "moes"}, "layers_block_type[1] is \"moes\"");
}

// A layer of its own has adapters and frozen parameters like any other.
TEST(OwnLayers, AreTuned) {
  Shape shape = read_own(tiny("cohere2"));
  adapt(shape, {.rank = 2, .alpha = 4, .targets = {"q_proj", "down_proj"}});
  const Layer layer = layer_at(shape, 0);
  EXPECT_EQ(layer.parts[0].weights.front().adapters.size(), 1U);
  EXPECT_EQ(layer.parts[1].weights.back().adapters.size(), 1U);
  EXPECT_FALSE(layer.parts[0].before->weights.front().trained);
}

}  // namespace
}  // namespace sluice::model
