#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "model/config_json.h"
#include "model/hugging_face.h"
#include "model/outline.h"
#include "model/parameter_count.h"
#include "model/parameters.h"

namespace sluice::model {
namespace {

using base::Json;
using testing::HasSubstr;

Outline outline_of(const Json& config) { return outline_from_hugging_face(config, "config.json"); }

// Keys of GLM-4.5-Air's file.
Json glm_config() {
  return {{"model_type", "glm4_moe"},
          {"architectures", {"Glm4MoeForCausalLM"}},
          {"attention_bias", true},
          {"attention_dropout", 0.0},
          {"hidden_size", 4096},
          {"partial_rotary_factor", 0.5},
          {"num_nextn_predict_layers", 1},
          {"hidden_act", "silu"},
          {"head_dim", 128},
          {"intermediate_size", 10944},
          {"max_position_embeddings", 131072},
          {"moe_intermediate_size", 1408},
          {"norm_topk_prob", true},
          {"num_attention_heads", 96},
          {"n_group", 1},
          {"topk_group", 1},
          {"n_routed_experts", 128},
          {"n_shared_experts", 1},
          {"routed_scaling_factor", 1.0},
          {"num_experts_per_tok", 8},
          {"first_k_dense_replace", 1},
          {"num_hidden_layers", 46},
          {"num_key_value_heads", 8},
          {"rms_norm_eps", 1e-05},
          {"rope_scaling", nullptr},
          {"rope_theta", 1000000},
          {"tie_word_embeddings", false},
          {"use_qk_norm", false},
          {"vocab_size", 151552}};
}

TEST(OutlineFromHuggingFace, Glm4MoeRoutesAsDeepSeekDoes) {
  const Outline outline = outline_of(glm_config());
  EXPECT_TRUE(outline.qkv_bias);
  EXPECT_EQ(outline.rotated, 64);
  EXPECT_TRUE(outline.experts.sigmoid && outline.experts.corrected && outline.experts.normalised);
  EXPECT_EQ(outline.experts.shared_hidden, 1408);
  EXPECT_FALSE(outline.block_type(0).experts);
  EXPECT_TRUE(outline.block_type(1).experts);
  EXPECT_EQ(outline_of(Json::parse(config_json(outline).dump())), outline);
  EXPECT_EQ(parameter_count(outline), parameter_table(outline).size());
  const auto expect_fault = [](const char* key, const Json& value, const char* fault) {
    Json config = glm_config();
    config[key] = value;
    EXPECT_THAT([&] { outline_of(config); }, testing::ThrowsMessage<base::InputError>(HasSubstr(fault)));
  };
  expect_fault("n_group", 3, "3 groups of 128 experts");
  expect_fault("topk_group", 2, "'topk_group' is 2");
  expect_fault("num_experts_per_tok", 129, "'num_experts_per_tok' is 129");
}

}  // namespace
}  // namespace sluice::model
