// Families as their classes' default configurations describe them, and files with other values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "model/config_json.h"
#include "model/families/family.h"
#include "model/family_table.h"
#include "model/hugging_face.h"
#include "model/layer.h"
#include "model/layer_of.h"
#include "model/outline.h"
#include "model/parameter_count.h"
#include "model/parameters.h"

namespace sluice::model {
namespace {

using base::Json;
using testing::HasSubstr;

Outline read_family(const Json& config) { return outline_from_hugging_face(config, "config.json"); }

// A small config.json of a model type; `others` adds or replaces keys.
Json small(const std::string& type, const Json& others) {
  Json config = {{"model_type", type},       {"hidden_size", 64},       {"num_hidden_layers", 4},
                 {"vocab_size", 96},         {"intermediate_size", 80}, {"num_attention_heads", 4},
                 {"num_key_value_heads", 2}, {"head_dim", 16}};
  if (!others.is_null()) config.update(others);
  return config;
}

const Json kScored = {{"n_routed_experts", 8}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 24}};
Json latent(const std::string& type) {
  Json config = small(type, kScored);
  config.update({{"num_key_value_heads", 4},
                 {"q_lora_rank", 24},
                 {"kv_lora_rank", 16},
                 {"qk_nope_head_dim", 12},
                 {"qk_rope_head_dim", 8},
                 {"v_head_dim", 10}});
  return config;
}

void expect_fault(const Json& config, const std::string& fault) {
  EXPECT_THAT([&] { read_family(config); }, testing::ThrowsMessage<base::InputError>(HasSubstr(fault)))
      << config;
}
void expect_fault(Json config, const char* key, const Json& value, const std::string& fault) {
  config[key] = value;
  expect_fault(config, fault);
}

std::vector<int64_t> layers_that(const Outline& outline, bool BlockType::*what) {
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < outline.layers; ++layer) {
    if (outline.block_type(layer).*what) layers.push_back(layer);
  }
  return layers;
}

TEST(Families, ReadWhatTheyHaveWritten) {
  for (const char* type : {"olmo3", "ministral", "seed_oss", "exaone4", "internlm3", "granite_swa"}) {
    const Outline outline = read_family(small(type, {}));
    EXPECT_EQ(read_family(Json::parse(config_json(outline).dump())), outline) << type;
    EXPECT_EQ(parameter_count(outline), parameter_table(outline).size()) << type;
    expect_fault(small(type, {{"some_new_gate", 3}}), "some_new_gate is 3");
    expect_fault(small(type, {{"mlp_bias", true}}), "mlp_bias is true");
    expect_fault(small(type, {{"hidden_act", "relu2"}}), "hidden_act is \"relu2\"");
  }
}

TEST(Families, NamesAreUniqueInTheRegistry) {
  for (const Family& family : families()) {
    EXPECT_EQ(family_of(family.model_type), &family) << family.model_type;
    EXPECT_FALSE(family.title.empty() || family.difference.empty()) << family.model_type;
  }
  EXPECT_EQ(family_rows_json().size(), family_rows().size());
}

TEST(Families, Olmo3sOldFilesScaleLayersWithoutWindowsAlone) {
  const Json config = small(
      "olmo3", {{"rope_theta", 3e5},
                {"rope_scaling",
                 {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 4096}}}});
  const Outline outline = read_family(config);
  EXPECT_THAT(layers_that(outline, &BlockType::windowed), testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(outline.window, 4096);
  EXPECT_EQ(outline.rope.scaling, RopeScaling::kYarn);
  ASSERT_TRUE(outline.window_rope);
  EXPECT_EQ(*outline.window_rope, Rope{.theta = 3e5});
  EXPECT_FALSE(read_family(small("olmo3", {{"rope_theta", 3e5}})).window_rope);
  EXPECT_EQ(read_family(small("olmo3", {})).rope.theta, 5e5);
  expect_fault(config, "rope_local_base_freq", 1e4, "rope_local_base_freq is 1");
  expect_fault(small("olmo3", {}), "rope_parameters", {{"rope_type", "default"}},
               "a dictionary for full_attention");
  expect_fault(config, "layer_types", {"full_attention"}, "a type for each of the 4 layers");
  expect_fault(config, "layer_types", {"full_attention", "full_attention", "mamba", "full_attention"},
               "layer_types[2] is \"mamba\"");
}

TEST(Families, ExaoneTurnsNoPositionsWhereItHasNoWindow) {
  const Outline hybrid = read_family(small("exaone4", {{"sliding_window", 128}}));
  EXPECT_THAT(layers_that(hybrid, &BlockType::rotates), testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(layers_that(hybrid, &BlockType::windowed), testing::ElementsAre(0, 1, 2));
  const Outline plain =
      read_family(small("exaone4", {{"sliding_window", nullptr}, {"sliding_window_pattern", nullptr}}));
  EXPECT_THAT(layers_that(plain, &BlockType::rotates), testing::SizeIs(4));
  EXPECT_EQ(plain.window, 0);
  // The file has a window, but all layers have full attention.
  const Json full =
      small("exaone4", {{"sliding_window_pattern", "LLLG"}, {"layer_types", Json(4, "full_attention")}});
  EXPECT_THAT(layers_that(read_family(full), &BlockType::rotates), testing::IsEmpty());
}

TEST(Families, LayersHaveExpertsWhereMlpLayerTypesSaysSo) {
  const Json types = {"dense", "sparse", "dense", "sparse"};
  Json mellum =
      small("mellum", {{"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 24}});
  Json exaone = mellum;
  exaone["model_type"] = "exaone_moe";
  for (Json config : {latent("glm4_moe_lite"), mellum, exaone}) {
    config["mlp_layer_types"] = types;
    EXPECT_THAT(layers_that(read_family(config), &BlockType::experts), testing::ElementsAre(1, 3)) << config;
    expect_fault(config, "mlp_layer_types", {"dense"}, "a type for each of the 4 layers");
    expect_fault(config, "mlp_layer_types", {"dense", "moe", "dense", "dense"},
                 "mlp_layer_types[1] is \"moe\"");
  }
  EXPECT_THAT(layers_that(read_family(latent("glm4_moe_lite")), &BlockType::experts),
              testing::ElementsAre(1, 2, 3));
  expect_fault(latent("glm4_moe_lite"), "first_k_dense_replace", 2, "first_k_dense_replace is 2");
  mellum.update({{"layer_types", Json(4, "sliding_attention")}, {"sliding_window", 64}});
  const Outline windowed = read_family(mellum);
  EXPECT_THAT(layers_that(windowed, &BlockType::windowed), testing::SizeIs(4));
  EXPECT_THAT(layers_that(windowed, &BlockType::experts), testing::SizeIs(4));
}

TEST(Families, DeepSeekV2ChoosesByASoftmaxWithoutGroups) {
  const Json config = latent("deepseek_v2");
  const Outline outline = read_family(config);
  EXPECT_FALSE(outline.experts.sigmoid || outline.experts.corrected || outline.experts.normalised);
  expect_fault(config, "topk_method", "group_limited_greedy", "topk_method is \"group_limited_greedy\"");
  expect_fault(config, "norm_topk_prob", true, "norm_topk_prob is true");
  Json whole = config;
  whole["q_lora_rank"] = nullptr;
  EXPECT_EQ(read_family(whole).latent.q_rank, 0);
  whole.erase("q_lora_rank");
  expect_fault(whole, "q_lora_rank", 0, "'q_lora_rank' is 0");
  Json kimi = latent("kimi_k2");
  kimi.update({{"n_group", 1}, {"topk_group", 1}});
  EXPECT_EQ(read_family(kimi).experts.count, 8);
}

TEST(Families, MiniMaxTurnsAsMuchOfAHeadAsEitherKeySays) {
  const Json config = small(
      "minimax_m2", {{"num_local_experts", 4}, {"num_experts_per_tok", 2}, {"attn_type_list", {1, 1, 1, 1}}});
  EXPECT_EQ(read_family(config).rotated, 0);
  Json partly = config;
  partly["rotary_dim"] = 8;
  EXPECT_EQ(read_family(partly).rotated, 8);
  partly["partial_rotary_factor"] = 0.25;
  EXPECT_EQ(read_family(partly).rotated, 4);
  EXPECT_TRUE(read_family(config).experts.corrected);
  expect_fault(config, "attn_type_list", {1, 0, 1, 1}, "attn_type_list is [1,0,1,1]");
  expect_fault(config, "use_routing_bias", false, "use_routing_bias is false");
  expect_fault(config, "layernorm_mlp_beta", 3.5, "layernorm_mlp_beta is 3.5");
}

TEST(Families, OddPartsOfHeadsTurnAsTransformersTurnsThem) {
  // A head is 4096 ÷ 96 wide, rounded down to 42. Half of it is rotated: 21 dimensions, in 11 pairs.
  Json config = small("glm4_moe", kScored);
  config.erase("head_dim");
  config.update({{"hidden_size", 4096}, {"num_attention_heads", 96}, {"num_key_value_heads", 8}});
  const Outline outline = read_family(config);
  EXPECT_EQ(outline.head_dim, 42);
  EXPECT_EQ(outline.rotated, 22);
  const RopeTable table = rope_table(outline.rope, outline.rotated, 128);
  ASSERT_EQ(table.inverse_frequencies.size(), 11U);
  for (size_t pair = 0; pair < 11; ++pair)
    EXPECT_NEAR(table.inverse_frequencies[pair], std::pow(1e4, -2.0 * static_cast<double>(pair) / 21), 1e-12);
  expect_fault(config, "rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}, "positions turn 21");
}

TEST(Families, GraniteHasOneBaseForEachKindOfLayer) {
  const Outline outline = read_family(small("granite_swa", {{"layer_rope_theta", {0, 2e4, 2e4, 2e4}}}));
  EXPECT_THAT(layers_that(outline, &BlockType::rotates), testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(outline.rope_of(outline.block_type(1)).theta, 2e4);
  EXPECT_TRUE(outline.sinks && outline.tie_embeddings);
  const auto expect = [](const Json& thetas, const char* fault) {
    expect_fault(small("granite_swa", {{"layer_rope_theta", thetas}}), fault);
  };
  expect({0, 2e4, 3e4, 2e4}, "one base for all layers with a window");
  expect({0, 2e4}, "a base for each of the 4 layers");
  expect({0, "x", 1, 1}, "numbers there");
  expect({0, -1, 1, 1}, "numbers there");
}

TEST(Families, GraniteStacksItsExperts) {
  const Json config =
      small("granitemoehybrid", {{"num_local_experts", 4},
                                 {"num_experts_per_tok", 2},
                                 {"shared_intermediate_size", 24},
                                 {"layer_types", {"mamba", "attention", "mamba", "attention"}},
                                 {"mamba_n_heads", 8}});
  const ParameterTable table = parameter_table(read_family(config));
  std::vector<std::string> stacked;
  for (const Bucket& bucket : table.buckets) {
    for (const Parameter& parameter : bucket.parameters) {
      if (parameter.stacked == 0 || bucket.path != "model.layers.0.") continue;
      for (const HuggingFaceTensor& tensor : hugging_face_tensors(bucket, parameter))
        stacked.push_back(tensor.name + base::json_text(tensor.shape));
    }
  }
  EXPECT_THAT(stacked,
              testing::UnorderedElementsAre("model.layers.0.block_sparse_moe.input_linear.weight[4,160,64]",
                                            "model.layers.0.block_sparse_moe.output_linear.weight[4,64,80]"));
  expect_fault(config, "num_experts_per_tok", 5, "'num_experts_per_tok' is 5");
}

TEST(Families, SayWhichMatricesMayHaveAdapters) {
  const AdaptedModules modules = adapted_modules(read_family(latent("glm4_moe_lite")));
  EXPECT_THAT(modules.can,
              testing::UnorderedElementsAre("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj",
                                            "o_proj", "gate_proj", "up_proj", "down_proj", "experts"));
  EXPECT_THAT(modules.cannot, testing::ElementsAre("router"));
  EXPECT_EQ(
      abilities_text(read_family(small("ministral", {}))),
      "trains (LoRA on q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj), generates, plans");
}

TEST(Families, BiasesAreWhereTheFileSaysSo) {
  const Outline plain = read_family(small("arcee", {}));
  EXPECT_FALSE(plain.qkv_bias || plain.out_bias || plain.mlp_bias || plain.mlp_gate);
  const Outline attention = read_family(small("nemotron", {{"attention_bias", true}}));
  EXPECT_TRUE(attention.qkv_bias && attention.out_bias && !attention.mlp_bias);
  EXPECT_EQ(attention.rotated, 8);
  EXPECT_TRUE(read_family(small("arcee", {{"mlp_bias", true}})).mlp_bias);
  EXPECT_FALSE(read_family(small("starcoder2", {{"use_bias", false}})).mlp_bias);
  EXPECT_TRUE(read_family(small("starcoder2", {})).qkv_bias);
  EXPECT_EQ(read_family(small("stablelm", {})).rotated, 4);
  EXPECT_EQ(parameter_count(read_family({{"model_type", "starcoder2"},
                                         {"hidden_size", 3072},
                                         {"num_hidden_layers", 30},
                                         {"vocab_size", 49152},
                                         {"intermediate_size", 12288},
                                         {"num_attention_heads", 24}})),
            3'030'371'328);
  expect_fault(small("arcee", {{"hidden_act", "silu"}}), "hidden_act is \"silu\"");
  expect_fault(small("starcoder2", {{"norm_type", "rms_norm"}}), "norm_type is \"rms_norm\"");
  expect_fault(small("stablelm", {{"use_parallel_residual", true}}), "use_parallel_residual is true");
  expect_fault(small("stablelm", {{"qk_layernorm", true}}), "qk_layernorm is true");
}

// The 8B model's pattern; transformers' class has as many parameters.
TEST(Families, NemotronHsLayersHaveOnePart) {
  Json config = {{"model_type", "nemotron_h"},
                 {"hidden_size", 4096},
                 {"intermediate_size", 21504},
                 {"vocab_size", 131072},
                 {"num_hidden_layers", 52},
                 {"hybrid_override_pattern", "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"}};
  const Outline outline = read_family(config);
  EXPECT_EQ(outline.layers, 52);
  EXPECT_EQ(parameter_count(outline), 8'100'852'736);
  EXPECT_EQ(parameter_count(outline), parameter_table(outline).size());
  EXPECT_EQ(read_family(Json::parse(config_json(outline).dump())), outline);
  for (int64_t layer = 0; layer < outline.layers; ++layer)
    EXPECT_THAT(layer_of(outline, outline.block_type(layer)).parts, testing::SizeIs(1));
  config.erase("hybrid_override_pattern");
  expect_fault(config, "hybrid_override_pattern");
  config["layers_block_type"] = {"mamba", "mlp", "attention", "moe"};
  expect_fault(config, "key 'n_routed_experts' is missing");
  expect_fault(config, "layers_block_type", Json::array(), "a type for each layer");
  expect_fault(config, "layers_block_type", Json::array({3}), "layers_block_type[0] is 3");
  expect_fault(config, "layers_block_type", "M*?", "layers_block_type[2] is \"?\"");
  config["layers_block_type"] = {"mamba", "mlp", "attention"};
  expect_fault(config, "mlp_hidden_act", "silu", "mlp_hidden_act is \"silu\"");
  expect_fault(config, "use_bias", true, "use_bias is true");
}

}  // namespace
}  // namespace sluice::model
