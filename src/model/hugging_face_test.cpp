#include "model/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "model/config_json.h"
#include "model/outline.h"
#include "model/parameter_count.h"

namespace sluice::model {
namespace {

using base::InputError;
using base::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// As transformers 4 wrote it.
Json old_config() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 1, "eos_token_id": [2, 3], "hidden_act": "silu", "hidden_size": 64,
    "initializer_range": 0.02, "intermediate_size": 96, "max_position_embeddings": 4096, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 8, "num_hidden_layers": 3, "num_key_value_heads": 2,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 500000.0,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.44.0",
    "use_cache": true, "vocab_size": 1000})");
}

// As transformers 5 writes it.
Json new_config() {
  Json config = old_config();
  config.erase("rope_scaling");
  config.erase("rope_theta");
  config.erase("torch_dtype");
  config["dtype"] = "bfloat16";
  config["head_dim"] = 8;
  config["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "default"}};
  return config;
}

Outline read(const Json& config) { return outline_from_hugging_face(config, "config.json"); }

TEST(OutlineFromHuggingFace, ReadsOldAndNewFiles) {
  const Outline expected = {.layers = 3,
                            .hidden = 64,
                            .heads = 8,
                            .kv_heads = 2,
                            .head_dim = 8,
                            .ffn_hidden = 96,
                            .vocab = 1000,
                            .tie_embeddings = true,
                            .norm_eps = 1e-5,
                            .rope = {.theta = 500000.0}};
  EXPECT_EQ(read(old_config()), expected);
  EXPECT_EQ(read(new_config()), expected);
}

TEST(OutlineFromHuggingFace, AbsentKeysTakeTransformersDefaults) {
  Json config = {{"model_type", "llama"},         {"hidden_size", 64},        {"intermediate_size", 96},
                 {"num_hidden_layers", 1},        {"num_attention_heads", 4}, {"vocab_size", 10},
                 {"num_key_value_heads", nullptr}};
  const Outline outline = read(config);
  EXPECT_EQ(outline.kv_heads, 4);
  EXPECT_EQ(outline.head_dim, 16);
  EXPECT_EQ(outline.norm_eps, 1e-6);
  EXPECT_FALSE(outline.tie_embeddings);
  EXPECT_EQ(outline.rope, Rope{});
}

TEST(OutlineFromHuggingFace, HeadDimMayDifferFromHiddenByHeads) {
  Json config = old_config();
  config["head_dim"] = 32;
  EXPECT_EQ(read(config).q_width(), 256);
}

TEST(OutlineFromHuggingFace, MistralsWindowIsThereUnlessItIsNull) {
  Json config = new_config();
  config["architectures"] = {"MistralForCausalLM"};
  config["model_type"] = "mistral";
  EXPECT_EQ(read(config).window, 4096);
  config["sliding_window"] = 512;
  EXPECT_EQ(read(config).window, 512);
  config["sliding_window"] = 0;
  EXPECT_THAT([&] { read(config); }, ThrowsMessage<InputError>(HasSubstr("sliding_window")));
  config["sliding_window"] = nullptr;
  Outline mistral = read(config);
  EXPECT_EQ(mistral.family, "mistral");
  EXPECT_EQ(mistral.window, 0);
  mistral.family = "llama";
  EXPECT_EQ(mistral, read(new_config()));
  config["num_attention_heads"] = 16;
  config["head_dim"] = 4;
  config.erase("num_key_value_heads");
  EXPECT_EQ(read(config).kv_heads, 8);
}

// As transformers 4 wrote Qwen 2.5's, and 5 writes Qwen 3's.
Json qwen_config(const std::string& type) {
  Json config = new_config();
  config.erase("pretraining_tp");
  config.erase("mlp_bias");
  config.erase("attention_bias");
  config["architectures"] = {type == "qwen2" ? "Qwen2ForCausalLM" : "Qwen3ForCausalLM"};
  config["model_type"] = type;
  config["use_sliding_window"] = false;
  config["sliding_window"] = 32768;
  config["max_window_layers"] = 28;
  config["layer_types"] = {"full_attention", "full_attention", "full_attention"};
  return config;
}

TEST(OutlineFromHuggingFace, ReadsWhatQwenAddsToAttention) {
  Outline expected = read(new_config());
  expected.family = "qwen2";
  expected.qkv_bias = true;
  EXPECT_EQ(read(qwen_config("qwen2")), expected);
  expected.family = "qwen3";
  expected.qkv_bias = false;
  expected.qk_norm = QkNorm::kEachHead;
  EXPECT_EQ(read(qwen_config("qwen3")), expected);
  Json config = qwen_config("qwen3");
  config.erase("head_dim");
  EXPECT_EQ(read(config).head_dim, 128);
  for (const char* type : {"qwen2", "qwen3"}) {
    const Outline outline = read(qwen_config(type));
    const Json written = config_json(outline);
    EXPECT_EQ(read(written), outline);
    EXPECT_EQ(written["model_type"], type);
  }
}

Json family_config(const std::string& type, const std::string& architecture) {
  Json config = new_config();
  config["architectures"] = {architecture};
  config["model_type"] = type;
  return config;
}

TEST(OutlineFromHuggingFace, Phi3FusesTensorsAndMayHaveAWindow) {
  Json config = family_config("phi3", "Phi3ForCausalLM");
  config["sliding_window"] = 2047;
  config["resid_pdrop"] = 0.0;
  config["original_max_position_embeddings"] = 4096;
  const Outline outline = read(config);
  EXPECT_EQ(outline.window, 2047);
  const ParameterTable table = parameter_table(outline);
  std::vector<std::string> names;
  for (const Parameter& parameter : table.layer(1).parameters) {
    for (const HuggingFaceTensor& tensor : hugging_face_tensors(table.layer(1), parameter)) {
      if (tensor.name.find("proj") != std::string::npos)
        names.push_back(base::text(tensor.name, " ", tensor.rows));
    }
  }
  EXPECT_THAT(
      names,
      ElementsAre("model.layers.1.self_attn.qkv_proj.weight 96", "model.layers.1.self_attn.o_proj.weight 64",
                  "model.layers.1.mlp.gate_up_proj.weight 192", "model.layers.1.mlp.down_proj.weight 96"));
  config["embd_pdrop"] = 0.1;
  EXPECT_THAT([&] { read(config); }, ThrowsMessage<InputError>(HasSubstr("embd_pdrop is 0.1")));
}

TEST(OutlineFromHuggingFace, GraniteHasFourFactors) {
  Json config = family_config("granite", "GraniteForCausalLM");
  config["embedding_multiplier"] = 12;
  config["residual_multiplier"] = 0.22;
  config["attention_multiplier"] = 0.0625;
  config["logits_scaling"] = 8;
  const Outline outline = read(config);
  EXPECT_EQ(outline.embedding_scale, 12);
  EXPECT_EQ(outline.residual_scale, 0.22);
  EXPECT_EQ(outline.attention_scale, 0.0625);
  EXPECT_EQ(outline.logit_divisor, 8);
  config["logits_scaling"] = 0;
  EXPECT_THAT([&] { read(config); }, ThrowsMessage<InputError>(HasSubstr("'logits_scaling' is 0")));
}

// The layers without rotary positions.
std::vector<int64_t> unrotated(const Outline& outline) {
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < outline.layers; ++layer) {
    if (!outline.block_type(layer).rotates) layers.push_back(layer);
  }
  return layers;
}

TEST(OutlineFromHuggingFace, SmolLm3LeavesPositionsOutOfSomeLayers) {
  Json config = family_config("smollm3", "SmolLM3ForCausalLM");
  config["num_hidden_layers"] = 5;
  EXPECT_EQ(unrotated(read(config)), (std::vector<int64_t>{3}));
  config["no_rope_layers"] = {1, 0, 1, 1, 0};
  EXPECT_EQ(unrotated(read(config)), (std::vector<int64_t>{1, 4}));
  config["no_rope_layers"] = {1, 0};
  EXPECT_THAT([&] { read(config); }, ThrowsMessage<InputError>(HasSubstr("no_rope_layers is [1,0]")));
  config["no_rope_layers"] = {1, 0, 2, 1, 0};
  EXPECT_THAT([&] { read(config); }, ThrowsMessage<InputError>(HasSubstr("no_rope_layers is 2")));
}

// As in its folders on the hub, before and since transformers 5.
Json gemma_config(const std::string& type) {
  return {{"model_type", type},
          {"architectures", {type == "gemma2" ? "Gemma2ForCausalLM" : "Gemma3ForCausalLM"}},
          {"hidden_activation", "gelu_pytorch_tanh"},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 7},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 32},
          {"query_pre_attn_scalar", 64},
          {"sliding_window", 16},
          {"vocab_size", 100}};
}

TEST(OutlineFromHuggingFace, EveryFamilyRoundTrips) {
  const std::pair<const char*, const char*> families[] = {
      {"llama", "LlamaForCausalLM"}, {"mistral", "MistralForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"},
      {"qwen3", "Qwen3ForCausalLM"}, {"phi3", "Phi3ForCausalLM"},       {"granite", "GraniteForCausalLM"},
      {"olmo2", "Olmo2ForCausalLM"}, {"smollm3", "SmolLM3ForCausalLM"}};
  for (const auto& [type, architecture] : families) {
    const Outline outline = read(family_config(type, architecture));
    const Json written = config_json(outline);
    EXPECT_EQ(read(Json::parse(written.dump())), outline) << type;
    EXPECT_EQ(written["model_type"], type);
    EXPECT_EQ(parameter_count(outline), parameter_table(outline).size()) << type;
  }
  for (const char* type : {"gemma2", "gemma3_text"}) {
    const Outline outline = read(gemma_config(type));
    EXPECT_EQ(read(Json::parse(config_json(outline).dump())), outline) << type;
    EXPECT_EQ(parameter_count(outline), parameter_table(outline).size()) << type;
  }
}

Json experts_config(const std::string& type, const char* architecture) {
  Json config = family_config(type, architecture);
  config["num_experts_per_tok"] = 2;
  const bool local = type == "mixtral" || type == "gpt_oss";
  if (type == "gpt_oss") config["attention_bias"] = true;
  config[local ? "num_local_experts" : "num_experts"] = 6;
  if (local || type == "olmoe") return config;
  config["moe_intermediate_size"] = 24;
  config["mlp_only_layers"] = {1};
  if (type == "qwen2_moe") config["shared_expert_intermediate_size"] = 40;
  return config;
}

TEST(OutlineFromHuggingFace, FamiliesWithExpertsRoundTrip) {
  for (const auto& [type, architecture] :
       {std::pair("mixtral", "MixtralForCausalLM"), std::pair("qwen2_moe", "Qwen2MoeForCausalLM"),
        std::pair("qwen3_moe", "Qwen3MoeForCausalLM"), std::pair("olmoe", "OlmoeForCausalLM"),
        std::pair("gpt_oss", "GptOssForCausalLM")}) {
    for (const bool normalised : {false, true}) {
      Json config = experts_config(type, architecture);
      const bool always = config.contains("num_local_experts");
      if (!always) config["norm_topk_prob"] = normalised;
      const Outline outline = read(config);
      EXPECT_EQ(read(Json::parse(config_json(outline).dump())), outline) << type;
      EXPECT_EQ(parameter_count(outline), parameter_table(outline).size()) << type;
      EXPECT_EQ(outline.experts.count, 6) << type;
      EXPECT_EQ(outline.experts.normalised, normalised || always) << type;
    }
  }
}

Json layer_types_of_granite() {
  Json types(40, "mamba");
  for (const size_t layer : {3, 15, 25, 35}) types[layer] = "attention";
  return types;
}

// As transformers' classes make them by default.
Json hybrid_config(const std::string& type) {
  Json config = {{"model_type", type},
                 {"hidden_size", 2048},
                 {"intermediate_size", 5632},
                 {"num_hidden_layers", 48},
                 {"num_attention_heads", 16},
                 {"num_key_value_heads", 2},
                 {"head_dim", 256},
                 {"vocab_size", 151936},
                 {"rms_norm_eps", 1e-6},
                 {"rope_parameters",
                  {{"rope_type", "default"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 0.25}}},
                 {"linear_num_key_heads", 16},
                 {"linear_num_value_heads", 32},
                 {"linear_key_head_dim", 128},
                 {"linear_value_head_dim", 128},
                 {"linear_conv_kernel_dim", 4}};
  const Json experts = {{"moe_intermediate_size", 512},
                        {"shared_expert_intermediate_size", 512},
                        {"num_experts", 512},
                        {"num_experts_per_tok", 10}};
  if (type == "qwen3_next") config.update(experts);
  if (type == "qwen3_5_moe_text") {
    config.update(experts);
    config.update({{"num_experts", 256},
                   {"num_experts_per_tok", 8},
                   {"num_hidden_layers", 40},
                   {"vocab_size", 248320}});
    config.erase("intermediate_size");
  }
  if (type == "qwen3_5_text") {
    config.update({{"hidden_size", 4096},
                   {"intermediate_size", 12288},
                   {"num_hidden_layers", 32},
                   {"num_key_value_heads", 4},
                   {"vocab_size", 248320}});
  }
  if (type == "granitemoehybrid") {
    return {{"model_type", type},
            {"hidden_size", 2048},
            {"intermediate_size", 11008},
            {"shared_intermediate_size", 8192},
            {"num_hidden_layers", 40},
            {"num_attention_heads", 32},
            {"num_key_value_heads", 8},
            {"vocab_size", 100352},
            {"tie_word_embeddings", true},
            {"num_local_experts", 0},
            {"mamba_n_heads", 64},
            {"mamba_d_state", 128},
            {"layer_types", layer_types_of_granite()}};
  }
  if (type == "olmo_hybrid") {
    config = {{"model_type", type},
              {"hidden_size", 3840},
              {"intermediate_size", 11008},
              {"num_hidden_layers", 32},
              {"vocab_size", 100352},
              {"num_attention_heads", 30},
              {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", nullptr}}}};
  }
  return config;
}

// The numbers of parameters in transformers' classes, exactly.
TEST(OutlineFromHuggingFace, HybridsHaveTheParametersOfTransformersClasses) {
  for (const auto& [type, count] :
       {std::pair("qwen3_next", 79'674'391'296), std::pair("qwen3_5_text", 8'953'803'264),
        std::pair("qwen3_5_moe_text", 34'660'610'688), std::pair("olmo_hybrid", 7'430'870'688),
        std::pair("granitemoehybrid", 3'191'396'096)}) {
    const Outline outline = read(hybrid_config(type));
    EXPECT_EQ(parameter_count(outline), count) << type;
    EXPECT_EQ(parameter_count(outline), parameter_table(outline).size()) << type;
    EXPECT_EQ(read(Json::parse(config_json(outline).dump())), outline) << type;
    EXPECT_TRUE(outline.block_type(0).recurrent) << type;
    EXPECT_FALSE(outline.block_type(3).recurrent) << type;
    if (outline.recurrent.key_heads > 1) {
      EXPECT_EQ(tp_fault(outline, 2), "") << type;
    } else {
      EXPECT_THAT(tp_fault(outline, 2), HasSubstr("tp 2 does not divide 1 key heads of recurrent layers"));
    }
  }
  EXPECT_FALSE(read(hybrid_config("olmo_hybrid")).block_type(3).rotates);
  EXPECT_EQ(read(hybrid_config("qwen3_next")).rotated_width(), 64);
  EXPECT_THAT(tp_fault(read(hybrid_config("olmo_hybrid")), 4),
              HasSubstr("tp 4 does not divide 30 key heads of recurrent layers"));
}

TEST(OutlineFromHuggingFace, HybridsThatAreNotComputedAreRefusedByKeyAndValue) {
  const auto fault = [](const char* type, const char* key, const Json& value) {
    Json config = hybrid_config(type);
    config[key] = value;
    try {
      read(config);
    } catch (const base::InputError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  Json types = Json(48, "linear_attention");
  types[5] = "rwkv";
  EXPECT_THAT(fault("qwen3_next", "layer_types", types), HasSubstr("layer_types[5] is \"rwkv\""));
  EXPECT_THAT(fault("qwen3_next", "layer_types", Json(3, "full_attention")),
              HasSubstr("each of the 48 layers"));
  EXPECT_THAT(fault("qwen3_next", "linear_conv_kernel_dim", 0), HasSubstr("'linear_conv_kernel_dim' is 0"));
  EXPECT_THAT(fault("qwen3_next", "linear_num_value_heads", 24),
              HasSubstr("24 value heads, no multiple of their 16 key heads"));
  EXPECT_THAT(fault("qwen3_next", "linear_key_head_dim", 1 << 20), HasSubstr("linear_key_head_dim"));
  EXPECT_THAT(fault("qwen3_5_text", "num_experts", 4), HasSubstr("num_experts is 4"));
  EXPECT_THAT(fault("qwen3_5_text", "partial_rotary_factor", 2.0), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(fault("olmo_hybrid", "linear_state_width", 2), HasSubstr("linear_state_width is 2"));
  EXPECT_THAT(fault("granitemoehybrid", "num_local_experts", 8), HasSubstr("num_experts_per_tok"));
  EXPECT_THAT(fault("granitemoehybrid", "mamba_n_heads", 60), HasSubstr("mamba_n_heads is 60"));
  EXPECT_THAT(fault("granitemoehybrid", "mamba_d_head", 65), HasSubstr("mamba_d_head is 65"));
  EXPECT_THAT(fault("granitemoehybrid", "time_step_limit", Json{0.001, 0.1}),
              HasSubstr("time_step_limit is"));
}

// The bucket of the first layer that has a parameter of this role.
const Bucket& bucket_of(const ParameterTable& table, std::string_view role) {
  const base::Interval own = table.program.at(table.program.blocks().begin).own;
  for (int64_t index = own.begin; index < own.end; ++index) {
    const Bucket& bucket = table.buckets[static_cast<size_t>(index)];
    if (find_parameter(bucket, role) != nullptr) return bucket;
  }
  throw base::InputError(base::text("no parameter ", role));
}

// gpt-oss has one tensor of all experts, [experts, in, out], with interleaved rows of gate and up.
TEST(HuggingFaceTensors, OfStackedExpertsStandElsewhere) {
  const ParameterTable table = parameter_table(read(experts_config("gpt_oss", "GptOssForCausalLM")));
  const auto only = [&](std::string_view role) {
    const Bucket& bucket = bucket_of(table, role);
    const auto tensors = hugging_face_tensors(bucket, *find_parameter(bucket, role));
    EXPECT_EQ(tensors.size(), 1U);
    return tensors.front();
  };
  const Outline& outline = table.model.outline();
  const int64_t hidden = outline.hidden, width = outline.experts.hidden;
  const HuggingFaceTensor gate_up = only("experts_gate_up");
  EXPECT_EQ(gate_up.name, "model.layers.0.mlp.experts.gate_up_proj");
  EXPECT_EQ(gate_up.shape, (std::vector<int64_t>{6, hidden, 2 * width}));
  EXPECT_FALSE(gate_up.straight());
  // Expert 2's second row of up, column 3.
  const int64_t place = gate_up.order.first_of(2 * 2 * width + width + 1) + 3 * gate_up.order.column_stride;
  EXPECT_EQ(place, (2 * hidden + 3) * 2 * width + 2 * 1 + 1);
  const HuggingFaceTensor down = only("experts_down");
  EXPECT_EQ(down.shape, (std::vector<int64_t>{6, width, hidden}));
  EXPECT_TRUE(down.straight());
  EXPECT_EQ(only("experts_gate_up_bias").shape, (std::vector<int64_t>{6, 2 * width}));
  EXPECT_EQ(only("experts_gate_up_bias").order.first_of(width), 1);
  EXPECT_EQ(only("experts_down_bias").shape, (std::vector<int64_t>{6, hidden}));
  EXPECT_EQ(only("router").name, "model.layers.0.mlp.router.weight");
}

// One tensor for each expert, as in the families' files.
TEST(HuggingFaceTensors, OfExpertsAreNamedOneByOne) {
  const auto names_of = [](const std::string& type, const char* architecture, std::string_view role) {
    const ParameterTable table = parameter_table(read(experts_config(type, architecture)));
    const Bucket& bucket = bucket_of(table, role);
    std::vector<std::string> names;
    for (const HuggingFaceTensor& tensor : hugging_face_tensors(bucket, *find_parameter(bucket, role)))
      names.push_back(tensor.name);
    return names;
  };
  const auto mixtral = names_of("mixtral", "MixtralForCausalLM", "experts_gate_up");
  EXPECT_EQ(mixtral.size(), 12U);
  EXPECT_EQ(mixtral[2], "model.layers.0.block_sparse_moe.experts.1.w1.weight");
  EXPECT_EQ(mixtral[3], "model.layers.0.block_sparse_moe.experts.1.w3.weight");
  EXPECT_EQ(names_of("olmoe", "OlmoeForCausalLM", "experts_down")[5],
            "model.layers.0.mlp.experts.5.down_proj.weight");
}

TEST(OutlineFromHuggingFace, ExpertsThatCannotBeNameThemselves) {
  const auto fault = [](const char* type, const char* architecture, const char* key, const Json& value) {
    Json config = experts_config(type, architecture);
    config[key] = value;
    return [config] { read(config); };
  };
  const auto qwen = [&](const char* key, const Json& value) {
    return fault("qwen3_moe", "Qwen3MoeForCausalLM", key, value);
  };
  EXPECT_THAT(qwen("num_experts_per_tok", 7),
              ThrowsMessage<InputError>(HasSubstr("'num_experts_per_tok' is 7")));
  EXPECT_THAT(qwen("num_experts", 0), ThrowsMessage<InputError>(HasSubstr("'num_experts' is 0")));
  EXPECT_THAT(qwen("moe_intermediate_size", "wide"),
              ThrowsMessage<InputError>(HasSubstr("moe_intermediate_size")));
  EXPECT_THAT(qwen("mlp_only_layers", {9}), ThrowsMessage<InputError>(HasSubstr("mlp_only_layers is 9")));
  EXPECT_THAT(qwen("use_sliding_window", true), ThrowsMessage<InputError>(HasSubstr("use_sliding_window")));
  EXPECT_THAT(qwen("output_router_logits", true),
              ThrowsMessage<InputError>(HasSubstr("output_router_logits is true")));
  EXPECT_THAT(fault("olmoe", "OlmoeForCausalLM", "clip_qkv", 8.0),
              ThrowsMessage<InputError>(HasSubstr("clip_qkv is 8")));
  EXPECT_THAT(fault("qwen2_moe", "Qwen2MoeForCausalLM", "qkv_bias", false),
              ThrowsMessage<InputError>(HasSubstr("qkv_bias is false")));
  EXPECT_THAT(fault("mixtral", "MixtralForCausalLM", "router_jitter_noise", 0.1),
              ThrowsMessage<InputError>(HasSubstr("router_jitter_noise is 0.1")));
}

// The layers whose attention has a window.
std::vector<int64_t> windowed(const Outline& outline) {
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < outline.layers; ++layer) {
    if (outline.block_type(layer).windowed) layers.push_back(layer);
  }
  return layers;
}

TEST(OutlineFromHuggingFace, QwensWindowsAreOffUnlessAKeyOfTheirOwnSaysOtherwise) {
  Json config = qwen_config("qwen3");
  config.erase("layer_types");
  config["sliding_window"] = 64;
  config["max_window_layers"] = 1;
  EXPECT_EQ(read(config).window, 0);
  config["use_sliding_window"] = true;
  EXPECT_EQ(read(config).window, 64);
  EXPECT_THAT(windowed(read(config)), ElementsAre(1, 2));
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  EXPECT_THAT(windowed(read(config)), ElementsAre(0));
  config["layer_types"] = {"full_attention", "full_attention", "full_attention"};
  EXPECT_EQ(read(config).window, 0);
  EXPECT_TRUE(read(config).block_types.empty());
}

TEST(OutlineFromHuggingFace, WindowsAndTypesThatAreNoneNameThemselves) {
  const auto fault = [](const char* key, const Json& value) {
    Json config = qwen_config("qwen3");
    config["use_sliding_window"] = true;
    config["sliding_window"] = 64;
    config[key] = value;
    return [config] { read(config); };
  };
  EXPECT_THAT(fault("sliding_window", "wide"), ThrowsMessage<InputError>(HasSubstr("sliding_window")));
  EXPECT_THAT(fault("sliding_window", 0), ThrowsMessage<InputError>(HasSubstr("sliding_window")));
  EXPECT_THAT(fault("sliding_window", 2.5), ThrowsMessage<InputError>(HasSubstr("sliding_window")));
  EXPECT_THAT(fault("attention_bias", true), ThrowsMessage<InputError>(HasSubstr("attention_bias is true")));
  EXPECT_THAT(fault("layer_types", 3), ThrowsMessage<InputError>(HasSubstr("layer_types is 3")));
  EXPECT_THAT(fault("layer_types", {"full_attention", "sliding_attention"}),
              ThrowsMessage<InputError>(HasSubstr("a type for each of the 3 layers")));
  EXPECT_THAT(fault("layer_types", {"full_attention", "chunked_attention", "full_attention"}),
              ThrowsMessage<InputError>(HasSubstr("layer_types[1] is \"chunked_attention\" but Sluice "
                                                  "computes only full_attention or sliding_attention")));
  Json without = qwen_config("qwen3");
  without["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT([&] { read(without); }, ThrowsMessage<InputError>(HasSubstr("its width is missing")));
}

TEST(OutlineFromHuggingFace, Gemma2AlternatesAndCaps) {
  const Outline outline = read(gemma_config("gemma2"));
  EXPECT_THAT(windowed(outline), ElementsAre(0, 2, 4, 6));
  EXPECT_EQ(outline.score_cap, 50.0);
  EXPECT_EQ(outline.logit_cap, 30.0);
  EXPECT_EQ(outline.attention_scale, 0.125);
  EXPECT_EQ(outline.embedding_scale, 8.0);
  EXPECT_EQ(outline.norm_offset, 1.0);
  EXPECT_TRUE(outline.tie_embeddings);
  Json config = gemma_config("gemma2");
  config["attn_logit_softcapping"] = nullptr;
  EXPECT_EQ(read(config).score_cap, 0.0);
}

TEST(OutlineFromHuggingFace, Gemma3TurnsWindowedLayersByAnotherBase) {
  Json config = gemma_config("gemma3_text");
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  config["rope_local_base_freq"] = 5000.0;
  const Outline outline = read(config);
  EXPECT_THAT(windowed(outline), ElementsAre(0, 1, 2, 3, 4, 6));
  EXPECT_EQ(outline.rope, (Rope{.theta = 1e6, .scaling = RopeScaling::kLinear, .factor = 8.0}));
  EXPECT_EQ(outline.window_rope, Rope{.theta = 5000.0});
  EXPECT_EQ(outline.rope_of({.windowed = true}).theta, 5000.0);
  config.erase("rope_scaling");
  config.erase("rope_local_base_freq");
  config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"rope_theta", 1e6}, {"factor", 8.0}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 5000.0}}}};
  EXPECT_EQ(read(config), outline);
  config["sliding_window_pattern"] = 2;
  EXPECT_THAT(windowed(read(config)), ElementsAre(0, 2, 4, 6));
}

TEST(OutlineFromHuggingFace, Phi3IsStretchedByFactorsOfEachPair) {
  Json config = new_config();
  config["model_type"] = "phi3";
  config["architectures"] = {"Phi3ForCausalLM"};
  config["max_position_embeddings"] = 16384;
  config["original_max_position_embeddings"] = 4096;
  config["rope_parameters"] = {{"rope_type", "longrope"},
                               {"rope_theta", 10000.0},
                               {"short_factor", {1.0, 1.0, 1.5, 2.0}},
                               {"long_factor", {1.0, 2.0, 4.0, 8.0}}};
  const Outline outline = read(config);
  const double first = rope_table(outline.rope, 8, 4096).inverse_frequencies[3];
  EXPECT_DOUBLE_EQ(rope_table(outline.rope, 8, 4097).inverse_frequencies[3] * 4, first);
  EXPECT_DOUBLE_EQ(rope_table(outline.rope, 8, 1).attention_scale, std::sqrt(1 + 2.0 / 12));
  config["rope_parameters"]["long_factor"] = {1.0};
  EXPECT_THAT(
      [&] { read(config); },
      ThrowsMessage<InputError>(HasSubstr("long_factor has 1 factors: give one for each of the 4 pairs")));
}

TEST(OutlineFromHuggingFace, EachRefusalNamesFileKeyAndValue) {
  const std::pair<std::function<void(Json&)>, std::string> refusals[] = {
      {[](Json& j) { j = Json::array(); }, "holds an object"},
      {[](Json& j) { j["model_type"] = "rwkv7"; },
       "model_type is \"rwkv7\" but Sluice computes only llama, mistral, qwen2, qwen3, phi3, granite"},
      {[](Json& j) { j.erase("model_type"); }, "'model_type' is missing"},
      {[](Json& j) { j["architectures"] = {"Qwen2ForCausalLM"}; }, "architectures is [\"Qwen2ForCausalLM\"]"},
      {[](Json& j) { j["architectures"] = {"LlamaForQuestionAnswering"}; }, "architectures is"},
      {[](Json& j) { j["attention_bias"] = true; }, "attention_bias is true"},
      {[](Json& j) { j["mlp_bias"] = true; }, "mlp_bias is true"},
      {[](Json& j) { j["hidden_act"] = "gelu"; }, "hidden_act is \"gelu\""},
      {[](Json& j) { j["pretraining_tp"] = 2; }, "pretraining_tp is 2"},
      {[](Json& j) { j["attention_dropout"] = 0.1; }, "attention_dropout is 0.1"},
      {[](Json& j) { j["sliding_window"] = 512; }, "sliding_window is 512"},
      {[](Json& j) { j["partial_rotary_factor"] = 0.5; }, "partial_rotary_factor is 0.5"},
      {[](Json& j) { j["logit_scale"] = 2; }, "logit_scale is 2"},
      {[](Json& j) { j["num_local_experts"] = 8; }, "num_local_experts is 8"},
      {[](Json& j) { j.erase("hidden_size"); }, "'hidden_size' is missing"},
      {[](Json& j) { j["hidden_size"] = "64"; },
       "'hidden_size' is \"64\": give a whole number from 1 to 1048576"},
      {[](Json& j) { j["num_hidden_layers"] = 2.5; }, "'num_hidden_layers' is 2.5: give a whole number"},
      {[](Json& j) { j["num_hidden_layers"] = 0; },
       "'num_hidden_layers' is 0: give a whole number from 1 to 4096"},
      {[](Json& j) { j["num_key_value_heads"] = 3; }, "heads is 8, no multiple of the 3 kv_heads"},
      {[](Json& j) { j["num_attention_heads"] = 6; }, "num_attention_heads 6 does not divide hidden_size 64"},
      {[](Json& j) { j["num_attention_heads"] = 0; }, "'num_attention_heads' is 0"},
      {[](Json& j) { j["tie_word_embeddings"] = 1; }, "'tie_word_embeddings' is 1: give true or false"},
      {[](Json& j) { j["rope_theta"] = -1; }, "'rope_theta' is -1: give a number from"},
      {[](Json& j) { j["rope_theta"] = "big"; }, "'rope_theta' is \"big\": give a number from"},
      {[](Json& j) { j["rope_scaling"] = 3; }, "rope_scaling is 3"},
      {[](Json& j) {
         j["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2}};
       },
       "rope_type is \"dynamic\""},
      {[](Json& j) {
         j["rope_scaling"] = {{"rope_type", "dynamic"}};
       },
       "rope_type is \"dynamic\""},
      {[](Json& j) {
         j["rope_scaling"] = {{"rope_type", 3}};
       },
       "rope_type is 3"},
      {[](Json& j) {
         j["rope_scaling"] = {{"rope_type", "linear"}};
       },
       "rope_scaling: key 'factor' is missing"},
      {[](Json& j) {
         j["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2}, {"mscale", 1}};
       },
       "mscale is 1"},
      {[](Json& j) {
         j["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", 8}, {"high_freq_factor", 4}};
       },
       "'low_freq_factor' is missing"},
      {[](Json& j) {
         j["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 8}, {"truncate", "no"}};
       },
       "truncate"},
      {[](Json& j) {
         j["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 8}, {"attention_factor", 0}};
       },
       "'attention_factor' is 0: give a number from"},
      {[](Json& j) {
         j["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}}}};
       },
       "full_attention is"},
      {[](Json& j) {
         j["rope_parameters"] = {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}};
       },
       "rope_parameters: partial_rotary_factor is 0.25"},
      {[](Json& j) {
         j["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2}};
         j["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 4}};
       },
       "rope_scaling and rope_parameters disagree"},
  };
  for (const auto& [make, refusal] : refusals) {
    Json config = old_config();
    make(config);
    EXPECT_THAT([&] { read(config); },
                ThrowsMessage<InputError>(AllOf(HasSubstr("config.json: "), HasSubstr(refusal))))
        << config.dump();
  }
}

// Other programs' notes are ignored; quantisation is seen in the tensors, not in these keys.
TEST(OutlineFromHuggingFace, KeysThatAreOffOrIrrelevantPass) {
  Json config = old_config();
  config["quantization_config"] = {{"bits", 4}, {"quant_method", "bitsandbytes"}};
  config["unsloth_version"] = "2026.9.1";
  config["unsloth_fixed"] = true;
  config["auto_map"] = {{"AutoModelForCausalLM", "modeling.Own"}};
  config["dtype"] = "bfloat16";
  config["torch_dtype"] = "float16";
  config["vision_token_id"] = 7;
  config["tokenizer_class"] = "LlamaTokenizer";
  config["embd_pdrop"] = 0.0;
  config["extra_layers"] = Json::array();
  config["task_specific_params"] = {{"text-generation", {{"do_sample", true}}}};
  config["use_sliding_window"] = false;
  config["_name_or_path"] = "somewhere";
  config["_attn_implementation_autoset"] = true;
  config["partial_rotary_factor"] = 1.0;
  config["attention_dropout"] = 0;
  EXPECT_EQ(read(config), read(old_config()));
  config["embd_pdrop"] = 0.1;
  EXPECT_THAT([&] { read(config); }, ThrowsMessage<InputError>(HasSubstr("embd_pdrop is 0.1")));
}

TEST(OutlineFromHuggingFace, RopeInsideTheDictionaryWins) {
  Json config = old_config();
  config["rope_parameters"] = {{"rope_theta", 7.0}, {"rope_type", "default"}};
  EXPECT_EQ(read(config).rope.theta, 7.0);
}

TEST(OutlineFromHuggingFace, OriginalContextFallsBackToMaxPositions) {
  Json config = old_config();
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(read(config).rope.original_max_position_embeddings, 4096);
}

// Every family refuses a key that no family asks for.
TEST(OutlineFromHuggingFace, NoFamilyPassesOverAKeyThatItDoesNotRead) {
  std::vector<Json> configs = {old_config()};
  for (const char* type : {"qwen2", "qwen3"}) configs.push_back(qwen_config(type));
  for (const char* type : {"gemma2", "gemma3_text"}) configs.push_back(gemma_config(type));
  for (const char* type :
       {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "granitemoehybrid", "olmo_hybrid"})
    configs.push_back(hybrid_config(type));
  configs.push_back(experts_config("mixtral", "MixtralForCausalLM"));
  configs.push_back(experts_config("gpt_oss", "GptOssForCausalLM"));
  for (Json& config : configs) {
    EXPECT_NO_THROW(read(config)) << config;
    config["gradient_scale_of_layers"] = 0.5;
    EXPECT_THAT([&] { read(config); },
                ThrowsMessage<InputError>(HasSubstr("gradient_scale_of_layers is 0.5")));
  }
}

TEST(OutlineFromHuggingFace, MutatedBytesNeverDoMoreThanThrow) {
  Json config = old_config();
  config["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}};
  const std::string bytes = config.dump();
  base::Rng rng(6);
  for (int round = 0; round < 3000; ++round) {
    std::string mutated = bytes;
    for (int64_t count = rng.between(1, 3); count > 0; --count) {
      mutated[rng.below(mutated.size())] = "0123456789-{}[]\",:.e\x80"[rng.below(21)];
    }
    try {
      const Outline outline = read(base::parse_json(mutated, "config.json"));
      rope_table(outline.rope, outline.head_dim, 1);
    } catch (const InputError&) {
    }
  }
}

TEST(HuggingFaceTensors, SplitFusedMatricesAndTransposeOutputs) {
  Outline outline = read(old_config());
  outline.tie_embeddings = false;
  const ParameterTable table = parameter_table(outline);
  std::vector<std::string> lines;
  for (const Bucket* bucket : {&table.embedding(), &table.layer(2), &table.head()}) {
    for (const Parameter& parameter : bucket->parameters) {
      for (const HuggingFaceTensor& tensor : hugging_face_tensors(*bucket, parameter)) {
        lines.push_back(base::text(tensor.name, " ", tensor.row_begin, "+", tensor.rows,
                                   tensor.straight() ? "" : " transposed",
                                   tensor.shape.size() == 1 ? " vector" : ""));
      }
    }
  }
  EXPECT_THAT(lines, ElementsAre("model.embed_tokens.weight 0+1000",                            //
                                 "model.layers.2.input_layernorm.weight 0+64 vector",           //
                                 "model.layers.2.self_attn.q_proj.weight 0+64",                 //
                                 "model.layers.2.self_attn.k_proj.weight 64+16",                //
                                 "model.layers.2.self_attn.v_proj.weight 80+16",                //
                                 "model.layers.2.self_attn.o_proj.weight 0+64 transposed",      //
                                 "model.layers.2.post_attention_layernorm.weight 0+64 vector",  //
                                 "model.layers.2.mlp.gate_proj.weight 0+96",                    //
                                 "model.layers.2.mlp.up_proj.weight 96+96",                     //
                                 "model.layers.2.mlp.down_proj.weight 0+96 transposed",         //
                                 "model.norm.weight 0+64 vector",                               //
                                 "lm_head.weight 0+1000"));
}

}  // namespace
}  // namespace sluice::model
