// Families whose readers make layers themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "model/border_rows.h"
#include "model/hugging_face.h"
#include "model/layer.h"
#include "model/layer_of.h"
#include "model/outline.h"
#include "model/parameters.h"
#include "model/program.h"
#include "model/test_tuning.h"

namespace sluice::model {
namespace {

using base::Json;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Outline read_own(const Json& config) { return outline_from_hugging_face(config, "config.json"); }

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

Layer layer_at(const Outline& outline, int64_t layer) { return layer_of(outline, outline.block_type(layer)); }
template <typename Mixer>
Mixer mixer_at(const Outline& outline, int64_t layer, size_t part = 0) {
  return std::get<Mixer>(layer_at(outline, layer).parts[part].mixer);
}

// Names with outlines, as "self_attn.q_proj.weight[64,64]".
std::vector<std::string> tensors_at(const Outline& outline, int64_t layer) {
  std::vector<std::string> names;
  const std::string path = "layers." + std::to_string(layer) + ".";
  for (const Bucket& bucket : parameter_table(outline).buckets) {
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
  const Outline outline = read_own(config);
  const QueryGrowth expected{.beta = 0.3, .positions = 16};
  EXPECT_EQ(mixer_at<Attention>(outline, 3).growth, expected);
  EXPECT_EQ(outline.rope.scaling, RopeScaling::kYarn);
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
  const Outline outline = read_own(tiny("mistral4", {{"num_key_value_heads", 4},
                                                     {"q_lora_rank", 24},
                                                     {"kv_lora_rank", 16},
                                                     {"qk_nope_head_dim", 8},
                                                     {"qk_rope_head_dim", 8},
                                                     {"v_head_dim", 10},
                                                     {"n_routed_experts", 8},
                                                     {"num_experts_per_tok", 2},
                                                     {"moe_intermediate_size", 24},
                                                     {"rope_parameters", growing_rope(0.1)}}));
  EXPECT_FALSE(outline.experts.sigmoid || outline.experts.corrected);
  EXPECT_TRUE(outline.experts.normalised);
  EXPECT_EQ(mixer_at<LatentAttention>(outline, 0).growth.beta, 0.1);
  EXPECT_GT(outline.attention_scale, 0);
}

TEST(OwnLayers, ErnieHasExpertsInSomeLayersAndItsCorrectionsInARow) {
  const Json config = tiny("ernie4_5_moe", {{"moe_num_experts", 6},
                                            {"moe_k", 2},
                                            {"moe_intermediate_size", 24},
                                            {"moe_layer_start_index", 1},
                                            {"moe_layer_end_index", 2}});
  const Outline outline = read_own(config);
  EXPECT_EQ(mixer_at<Attention>(outline, 0).turning, Turning::kNeighbours);
  EXPECT_TRUE(std::holds_alternative<Mlp>(layer_at(outline, 0).parts[1].mixer));
  EXPECT_TRUE(std::holds_alternative<RoutedExperts>(layer_at(outline, 2).parts[1].mixer));
  EXPECT_TRUE(std::holds_alternative<Mlp>(layer_at(outline, 3).parts[1].mixer));
  EXPECT_THAT(tensors_at(outline, 1), Contains("mlp.moe_statics.e_score_correction_bias[1,6]"));
  expect_own_fault(config, "use_bias", true, "use_bias is true");
  expect_own_fault(config, "moe_k", 7, "'moe_k' is 7");
  EXPECT_TRUE(read_own(tiny("ernie4_5", {{"use_bias", true}})).mlp_bias);
}

TEST(OwnLayers, Glm4HasFourNorms) {
  const Outline outline = read_own(tiny("glm4"));
  EXPECT_EQ(outline.rotated, 8);
  const std::vector<std::string> tensors = tensors_at(outline, 0);
  for (const char* norm : {"input_layernorm.weight[64]", "post_self_attn_layernorm.weight[64]",
                           "post_attention_layernorm.weight[64]", "post_mlp_layernorm.weight[64]"})
    EXPECT_THAT(tensors, Contains(norm));
  EXPECT_THAT(tensors, Contains("self_attn.k_proj.bias[32]"));
  EXPECT_THAT(tensors, Contains("mlp.gate_up_proj.weight[160,64]"));
}

TEST(OwnLayers, CohereHasOneNormForAttentionAndTheMlpBesideIt) {
  const Json config = tiny("cohere2", {{"logit_scale", 0.25}});
  const Outline outline = read_own(config);
  const Layer windowed = layer_at(outline, 0), full = layer_at(outline, 3);
  EXPECT_TRUE(windowed.parts[1].beside);
  EXPECT_EQ(windowed.parts[1].before, windowed.parts[0].before);
  EXPECT_THAT(tensors_at(outline, 0), testing::UnorderedElementsAre(
                                          "input_layernorm.weight[64]", "self_attn.q_proj.weight[64,64]",
                                          "self_attn.k_proj.weight[32,64]", "self_attn.v_proj.weight[32,64]",
                                          "self_attn.o_proj.weight[64,64]", "mlp.gate_proj.weight[80,64]",
                                          "mlp.up_proj.weight[80,64]", "mlp.down_proj.weight[64,80]"));
  EXPECT_TRUE(mixer_at<Attention>(outline, 0).rope.has_value());
  EXPECT_FALSE(std::get<Attention>(full.parts[0].mixer).rope.has_value());
  EXPECT_EQ(outline.logit_divisor, 4);
  expect_own_fault(config, "sliding_window", nullptr, "sliding_window is null");
  expect_own_fault(config, "use_qk_norm", true, "use_qk_norm is true");
}

TEST(OwnLayers, HunyuanNormsHeadsBehindTheirRotationWhoseBaseAlphaStretches) {
  const Json config =
      tiny("hunyuan_v1_moe", {{"num_experts", 4},
                              {"moe_topk", 2},
                              {"rope_theta", 1e4},
                              {"rope_scaling", {{"type", "dynamic"}, {"alpha", 50.0}, {"factor", 1.0}}}});
  const Outline outline = read_own(config);
  EXPECT_TRUE(mixer_at<Attention>(outline, 0).head_norm_style.behind_rotation);
  EXPECT_NEAR(outline.rope.theta, 1e4 * std::pow(50.0, 16.0 / 14), 1e-6);
  EXPECT_EQ(outline.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(outline.experts.shared_hidden, 80);
  EXPECT_THAT(tensors_at(outline, 0), Contains("self_attn.query_layernorm.weight[16]"));
  expect_own_fault(config, "rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}},
                   "rope_type is \"dynamic\"");
  expect_own_fault(config, "moe_topk", {1, 2}, "moe_topk");
  expect_own_fault(config, "use_cla", true, "use_cla is true");
}

TEST(OwnLayers, NanochatHasNoWeightsOfNorms) {
  const Outline outline = read_own(tiny("nanochat", {{"hidden_act", "relu2"}}));
  EXPECT_THAT(tensors_at(outline, 0), testing::UnorderedElementsAre(
                                          "self_attn.q_proj.weight[64,64]", "self_attn.k_proj.weight[32,64]",
                                          "self_attn.v_proj.weight[32,64]", "self_attn.o_proj.weight[64,64]",
                                          "mlp.fc1.weight[80,64]", "mlp.fc2.weight[64,80]"));
  EXPECT_TRUE(embedding_of(outline).norm.has_value());
  EXPECT_FALSE(embedding_of(read_own(tiny("arcee"))).norm.has_value());
  EXPECT_EQ(outline.logit_cap, 15);
  expect_own_fault(tiny("nanochat"), "hidden_act", "silu", "hidden_act is \"silu\"");
}

TEST(OwnLayers, AfmoeHasGatesApartAndNormsAroundExperts) {
  const Json config =
      tiny("afmoe", {{"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 24}});
  const Outline outline = read_own(config);
  const std::vector<std::string> tensors = tensors_at(outline, 1);
  for (const char* tensor :
       {"self_attn.gate_proj.weight[64,64]", "self_attn.q_proj.weight[64,64]",
        "post_mlp_layernorm.weight[64]", "mlp.expert_bias[4]", "mlp.router.gate.weight[4,64]"})
    EXPECT_THAT(tensors, Contains(tensor));
  EXPECT_TRUE(layer_at(outline, 1).parts[1].behind.has_value());
  EXPECT_FALSE(mixer_at<Attention>(outline, 3).rope.has_value());
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
  const Outline outline = read_own(tiny_gemma4());
  EXPECT_EQ(outline.window, 512);
  const auto windowed = mixer_at<Attention>(outline, 0), full = mixer_at<Attention>(outline, 3);
  EXPECT_EQ(std::tuple(windowed.window, windowed.head_dim, windowed.kv_heads, windowed.keys_are_values),
            std::tuple(512, 16, 2, false));
  EXPECT_EQ(std::tuple(full.window, full.head_dim, full.kv_heads, full.keys_are_values),
            std::tuple(0, 24, 1, true));
  EXPECT_TRUE(windowed.normed_values && full.normed_values);
  EXPECT_EQ(windowed.rope->theta, 1e4);
  EXPECT_EQ(std::tuple(full.rope->theta, full.rope->scaling, full.rope->proportion, full.rotated),
            std::tuple(1e6, RopeScaling::kProportional, 0.25, 24));
  EXPECT_THAT(tensors_at(outline, 0), Contains("self_attn.v_proj.weight[32,64]"));
  EXPECT_THAT(tensors_at(outline, 3), Not(Contains(HasSubstr("v_proj"))));
  EXPECT_THAT(tensors_at(outline, 3), Contains("self_attn.o_proj.weight[64,96]"));
  Json by_layer = tiny_gemma4();
  for (const char* key : {"global_head_dim", "num_global_key_value_heads"}) by_layer.erase(key);
  by_layer["per_layer_config"] = {{"03", {{"head_dim", 24}, {"num_key_value_heads", 1}}}};
  EXPECT_EQ(mixer_at<Attention>(read_own(by_layer), 3), full);
  EXPECT_EQ(mixer_at<Attention>(read_own(by_layer), 0), windowed);
}

TEST(OwnLayers, Gemma4HasExpertsBesideTheMlpAndANumberForEachLayer) {
  const Outline outline = read_own(tiny_gemma4());
  const Layer layer = layer_at(outline, 1);
  ASSERT_EQ(layer.parts.size(), 3);
  EXPECT_TRUE(layer.parts[2].beside && layer.parts[2].own_norm && layer.joint);
  EXPECT_EQ(std::get<RoutedExperts>(layer.parts[2].mixer).router_norm_eps, 1e-6);
  const std::vector<std::string> tensors = tensors_at(outline, 1);
  for (const char* tensor :
       {"layer_scalar[1]", "router.proj.weight[6,64]", "router.scale[64]", "router.per_expert_scale[6]",
        "experts.gate_up_proj[6,24,64]", "experts.down_proj[6,64,12]", "mlp.gate_proj.weight[80,64]",
        "pre_feedforward_layernorm.weight[64]", "pre_feedforward_layernorm_2.weight[64]",
        "post_feedforward_layernorm.weight[64]", "post_feedforward_layernorm_1.weight[64]",
        "post_feedforward_layernorm_2.weight[64]"})
    EXPECT_THAT(tensors, Contains(tensor));
  EXPECT_TRUE(is_tuned(outline) == false);
  for (const Bucket& bucket : parameter_table(outline).buckets) {
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

Json tiny_gemma4_e() {
  return tiny("gemma4_text", {{"num_hidden_layers", 6},
                              {"hidden_size_per_layer_input", 8},
                              {"vocab_size_per_layer_input", 96},
                              {"num_kv_shared_layers", 3},
                              {"global_head_dim", 24},
                              {"use_double_wide_mlp", true},
                              {"layer_types",
                               {"sliding_attention", "sliding_attention", "full_attention",
                                "sliding_attention", "sliding_attention", "full_attention"}}});
}

TEST(OwnLayers, Gemma4EHasEmbeddingsByLayer) {
  const Outline outline = read_own(tiny_gemma4_e());
  const ParameterTable table = parameter_table(outline);
  std::map<std::string_view, std::pair<int64_t, int64_t>> sizes;
  for (const Parameter& own : table.embedding().parameters) sizes[own.role] = {own.rows, own.columns};
  EXPECT_EQ(sizes["layer_embedding"], std::pair(int64_t{96}, int64_t{48}));
  EXPECT_EQ(sizes["layer_projection"], std::pair(int64_t{48}, int64_t{64}));
  EXPECT_EQ(sizes["layer_projection_norm"], std::pair(int64_t{8}, int64_t{1}));
  const Layer layer = layer_at(outline, 5);
  ASSERT_EQ(layer.parts.size(), 3);
  EXPECT_EQ(std::get<LayerInput>(layer.parts[2].mixer).width, 8);
  EXPECT_TRUE(!layer.parts[2].before && layer.parts[2].behind);
  for (const char* tensor : {"per_layer_input_gate.weight[8,64]", "per_layer_projection.weight[64,8]",
                             "post_per_layer_input_norm.weight[64]"})
    EXPECT_THAT(tensors_at(outline, 5), Contains(tensor));
}

TEST(OwnLayers, Gemma4ESharesKeysOfTheLastLayersThatMakeThem) {
  const Outline outline = read_own(tiny_gemma4_e());
  const auto sharing = [&](int64_t layer) {
    const auto own = mixer_at<Attention>(outline, layer);
    return std::pair(own.sharing, own.key_slot);
  };
  EXPECT_EQ(sharing(0).first, KeySharing::kOwn);
  EXPECT_EQ(sharing(1), std::pair(KeySharing::kLends, size_t{0}));
  EXPECT_EQ(sharing(2), std::pair(KeySharing::kLends, size_t{1}));
  for (const int64_t layer : {3, 4}) EXPECT_EQ(sharing(layer), std::pair(KeySharing::kBorrows, size_t{0}));
  EXPECT_EQ(sharing(5), std::pair(KeySharing::kBorrows, size_t{1}));
  EXPECT_THAT(tensors_at(outline, 2), Contains("self_attn.k_norm.weight[24]"));
  for (const char* tensor : {"k_proj", "v_proj", "k_norm"})
    EXPECT_THAT(tensors_at(outline, 5), Not(Contains(HasSubstr(tensor))));
  EXPECT_THAT(tensors_at(outline, 2), Contains("mlp.up_proj.weight[80,64]"));
  EXPECT_THAT(tensors_at(outline, 3), Contains("mlp.up_proj.weight[160,64]"));
}

TEST(OwnLayers, BordersCarryWhatLaterLayersTake) {
  const Program program(read_own(tiny_gemma4_e()));
  const auto keys = [&](int64_t position, int tp) { return border_rows(program, position, tp).keys; };
  using Keys = std::array<int64_t, kKeySlots>;
  EXPECT_EQ(keys(2, 1), (Keys{0, 0}));  // before the first lender
  EXPECT_EQ(keys(3, 1), (Keys{64, 0}));
  EXPECT_EQ(keys(4, 1), (Keys{64, 96}));
  EXPECT_EQ(keys(4, 4), (Keys{32, 48}));  // one head each, shared by two ranks
  EXPECT_EQ(keys(6, 1), (Keys{0, 96}));   // after the last layer with a window
  EXPECT_EQ(border_rows(program, 3, 1).layers, (base::Interval{2, 6}));
  EXPECT_EQ(border_width(program, 3, 1), 64 + 4 * 8 + 64);
  EXPECT_EQ(border_width(program, 4, 4), 64 + 3 * 8 + 4 * (32 + 48));
  EXPECT_EQ(widest_border(program, 1, 1), 64);
  EXPECT_TRUE(border_rows(Program(read_own(tiny_gemma4())), 2, 1).empty());
}

TEST(OwnLayers, Gemma4ERefusesOtherModels) {
  const Json config = tiny_gemma4_e();
  expect_own_fault(config, "vocab_size_per_layer_input", 95, "vocab_size_per_layer_input is 95");
  expect_own_fault(config, "num_kv_shared_layers", 4, "num_kv_shared_layers is 4");
  expect_own_fault(config, "num_kv_shared_layers", 7, "'num_kv_shared_layers' is 7");
  Json null = config;
  null["hidden_size_per_layer_input"] = nullptr;
  EXPECT_EQ(layer_at(read_own(null), 0).parts.size(), 2);
  Json absent = config;
  absent.erase("hidden_size_per_layer_input");
  EXPECT_EQ(mixer_at<LayerInput>(read_own(absent), 0, 2).width, 256);
}

Json tiny_llama4() {
  return tiny("llama4_text", {{"intermediate_size_mlp", 96},
                              {"num_local_experts", 4},
                              {"num_experts_per_tok", 1},
                              {"interleave_moe_layer_step", 2},
                              {"no_rope_layers", Json::array()},
                              {"attention_chunk_size", 24}});
}

TEST(OwnLayers, Llama4SeesChunksWhereItTurns) {
  const Outline outline = read_own(tiny_llama4());
  const auto chunked = mixer_at<Attention>(outline, 0), full = mixer_at<Attention>(outline, 3);
  EXPECT_TRUE(Model(outline).attends_by_chunks());
  EXPECT_EQ(std::tuple(chunked.window, chunked.chunked, chunked.head_norm),
            std::tuple(24, true, QkNorm::kEachHead));
  EXPECT_TRUE(chunked.head_norm_style.behind_rotation && !chunked.head_norm_style.weights);
  EXPECT_EQ(chunked.turning, Turning::kNeighbours);
  EXPECT_EQ(chunked.growth, QueryGrowth());
  EXPECT_EQ(std::tuple(full.window, full.chunked, full.head_norm), std::tuple(0, false, QkNorm::kNone));
  EXPECT_FALSE(full.rope);
  EXPECT_EQ(full.growth, (QueryGrowth{.beta = 0.1, .positions = 8192, .first = 1}));
  Json calm = tiny_llama4();
  calm["attn_temperature_tuning"] = false;
  calm["use_qk_norm"] = false;
  EXPECT_EQ(mixer_at<Attention>(read_own(calm), 3).growth, QueryGrowth());
  EXPECT_EQ(mixer_at<Attention>(read_own(calm), 0).head_norm, QkNorm::kNone);
}

TEST(OwnLayers, Llama4WeighsWhatItsExpertsTake) {
  const Outline outline = read_own(tiny_llama4());
  EXPECT_THAT(tensors_at(outline, 0), Contains("feed_forward.up_proj.weight[96,64]"));
  const auto routed = mixer_at<RoutedExperts>(outline, 1, 1);
  EXPECT_TRUE(routed.gate.weighs_input && routed.experts.sigmoid && !routed.experts.normalised);
  EXPECT_EQ(routed.experts.shared_hidden, 80);
  EXPECT_THAT(tensors_at(outline, 1), Contains("feed_forward.shared_expert.down_proj.weight[64,80]"));
  Json listed = tiny_llama4();
  listed["moe_layers"] = {0};
  EXPECT_EQ(mixer_at<Mlp>(read_own(listed), 1, 1).width, 96);
}

TEST(OwnLayers, Llama4RefusesOtherModels) {
  const Json config = tiny_llama4();
  expect_own_fault(config, "moe_layers", {4}, "moe_layers is 4");
  expect_own_fault(config, "attention_chunk_size", nullptr, "attention_chunk_size is null");
  expect_own_fault(config, "no_rope_layers", {1, 2, 1, 0}, "no_rope_layers is 2");
  expect_own_fault(config, "layer_types", {"sliding_attention"}, "layer_types");
  expect_own_fault(config, "router_jitter_noise", 0.1, "router_jitter_noise is 0.1");
}

TEST(OwnLayers, PhimoeHasSparseMixerAndABiasOfLogits) {
  const Json config = tiny("phimoe", {{"num_local_experts", 4},
                                      {"num_experts_per_tok", 2},
                                      {"attention_bias", true},
                                      {"lm_head_bias", true}});
  const Outline outline = read_own(config);
  EXPECT_EQ(mixer_at<RoutedExperts>(outline, 0, 1).sparse_jitter, 0.01);
  EXPECT_EQ(layer_at(outline, 0).parts[0].before->weights.size(), 2);
  const Head head = head_of(outline);
  ASSERT_TRUE(head.bias);
  EXPECT_EQ(std::pair(head.bias->tensors.front(), head.bias->rows()),
            std::pair(std::string("lm_head.bias"), int64_t{96}));
  expect_own_fault(config, "num_experts_per_tok", 3, "num_experts_per_tok is 3");
  expect_own_fault(config, "input_jitter_noise", 0.1, "input_jitter_noise is 0.1");
  const Json scaled = {{"rope_type", "longrope"},
                       {"rope_theta", 1e4},
                       {"original_max_position_embeddings", 16},
                       {"short_factor", std::vector<double>(8, 1.0)},
                       {"long_factor", std::vector<double>(8, 2.0)},
                       {"short_mscale", 1.25},
                       {"long_mscale", 1.25}};
  Json longer = config;
  longer["max_position_embeddings"] = 64;
  longer["rope_parameters"] = scaled;
  EXPECT_EQ(read_own(longer).rope.attention_factor, 1.25);
  longer["rope_parameters"]["long_mscale"] = 1.5;
  expect_own_fault(longer, "long_mscale is 1.5");
}

TEST(OwnLayers, Gemma4RefusesOtherModels) {
  const Json config = tiny_gemma4();
  Json by_layer = config;
  by_layer["vocab_size_per_layer_input"] = config.at("vocab_size");
  expect_own_fault(by_layer, "hidden_size_per_layer_input", 32, "hidden_size_per_layer_input is 32");
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
  const Outline outline = read_own(tiny_kimi());
  const auto kda = mixer_at<Kda>(outline, 0);
  EXPECT_EQ(std::tuple(kda.heads.value_heads, kda.heads.key_width, kda.heads.convolution, kda.rank),
            std::tuple(4, 8, 3, 8));
  const auto latent = mixer_at<LatentAttention>(outline, 3);
  EXPECT_EQ(std::tuple(latent.q_rank, latent.kv_rank, latent.rope.has_value()), std::tuple(0, 16, false));
  EXPECT_EQ(std::tuple(outline.experts.groups, outline.experts.factor), std::tuple(2, 2.446));
  EXPECT_TRUE(std::holds_alternative<Mlp>(layer_at(outline, 0).parts[1].mixer));
  EXPECT_TRUE(std::holds_alternative<RoutedExperts>(layer_at(outline, 1).parts[1].mixer));
  for (const char* tensor :
       {"self_attn.A_log[1,1,4,1]", "self_attn.dt_bias[32]", "self_attn.f_a_proj.weight[8,64]",
        "self_attn.f_b_proj.weight[32,8]", "self_attn.g_b_proj.weight[32,8]", "self_attn.b_proj.weight[4,64]",
        "self_attn.k_conv1d.weight[32,1,3]", "self_attn.o_norm.weight[8]"})
    EXPECT_THAT(tensors_at(outline, 0), Contains(tensor));
  EXPECT_THAT(tensors_at(outline, 3), Contains("self_attn.q_proj.weight[80,64]"));
  EXPECT_THAT(tensors_at(outline, 1), Contains("block_sparse_moe.gate.e_score_correction_bias[8]"));
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
  const Outline outline = read_own(tiny("apertus"));
  EXPECT_EQ(outline.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(mixer_at<Mlp>(outline, 0, 1).gate.activation, Activation::kXielu);
  EXPECT_THAT(tensors_at(outline, 0), Contains("mlp.act_fn.alpha_p[1]"));
  EXPECT_THAT(tensors_at(outline, 0), Contains("feedforward_layernorm.weight[64]"));
  expect_own_fault(tiny("apertus"), "hidden_act", "silu", "hidden_act is \"silu\"");
}

TEST(OwnLayers, LfmConvolvesWhereTheFileSaysSo) {
  Json config = tiny("lfm2", {{"full_attn_idxs", {1, 3}}, {"block_multiple_of", 8}, {"conv_bias", true}});
  config.erase("head_dim");
  const Outline outline = read_own(config);
  EXPECT_EQ(outline.ffn_hidden, 56);  // 53, two thirds of 80, rounded up
  EXPECT_EQ(mixer_at<ShortConvolution>(outline, 0).heads.convolution, 3);
  EXPECT_EQ(mixer_at<Attention>(outline, 1).head_norm, QkNorm::kEachHead);
  EXPECT_THAT(tensors_at(outline, 0),
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
  Outline outline = read_own(config);
  EXPECT_EQ(mixer_at<RoutedExperts>(outline, 2, 1).floor, 1e-6);
  EXPECT_TRUE(std::holds_alternative<Mlp>(layer_at(outline, 1).parts[1].mixer));
  const auto loads = testing::Contains(testing::HasSubstr("loads"));
  EXPECT_THAT(tensors_at(outline, 2), Not(loads));
  outline.experts.remembers_loads = true;
  EXPECT_THAT(tensors_at(outline, 2), loads);
}

TEST(OwnLayers, BambaListsItsLayersOfAttention) {
  const Json config =
      tiny("bamba", {{"attn_layer_indices", {2}}, {"mamba_n_heads", 8}, {"mamba_d_state", 8}});
  const Outline outline = read_own(config);
  EXPECT_FALSE(outline.block_type(2).recurrent);
  EXPECT_TRUE(outline.block_type(3).recurrent);
  EXPECT_EQ(outline.rotated, 8);
  EXPECT_THAT(tensors_at(outline, 0), Contains("pre_ff_layernorm.weight[64]"));
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
  const Outline outline = read_own(config);
  const Layer layer = layer_at(outline, 0);
  ASSERT_EQ(layer.parts.size(), 3U);
  EXPECT_THAT(layer.parts[0].factors.front().of_groups, testing::ElementsAre(2, 4, 6, 8, 10));
  EXPECT_THAT(layer.parts[1].factors.front().of_groups, testing::ElementsAre(3, 1.5, 3));
  EXPECT_TRUE(layer.parts[1].beside);
  EXPECT_EQ(layer.parts[2].scale, 0.75);
  EXPECT_EQ(outline.recurrent.value_width, 12);
  EXPECT_EQ(outline.logit_divisor, 8);
  const std::vector<std::string> tensors = tensors_at(outline, 0);
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
  const Outline outline = read_own(config);
  const std::vector<std::string> tensors = tensors_at(outline, 1);
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

// A layer with its own definition has adapters and frozen parameters like any other.
TEST(OwnLayers, AreTuned) {
  Outline outline = read_own(tiny("cohere2"));
  adapt(outline, {.rank = 2, .alpha = 4, .targets = {"q_proj", "down_proj"}});
  const Layer layer = layer_at(outline, 0);
  EXPECT_EQ(layer.parts[0].weights.front().adapters.size(), 1U);
  EXPECT_EQ(layer.parts[1].weights.back().adapters.size(), 1U);
  EXPECT_FALSE(layer.parts[0].before->weights.front().trained);
}

}  // namespace
}  // namespace sluice::model
