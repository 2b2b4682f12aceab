// MTP layers under the families' names, in a model's tables, and models that have none to train.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "model/config_json.h"
#include "model/hugging_face.h"
#include "model/kind.h"
#include "model/outline.h"
#include "model/test_mtp.h"
#include "model/test_outline.h"
#include "model/tuning.h"

namespace sluice::model {
namespace {

using base::Json;

Json qwen_config() {
  return {{"model_type", "qwen3_5_text"},
          {"hidden_size", 12},
          {"intermediate_size", 20},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"head_dim", 8},
          {"vocab_size", 33},
          {"linear_num_key_heads", 1},
          {"linear_num_value_heads", 2},
          {"linear_key_head_dim", 4},
          {"linear_value_head_dim", 4},
          {"layer_types", {"linear_attention", "full_attention", "linear_attention", "linear_attention"}},
          {"mtp_num_hidden_layers", 1}};
}

Model plain_model(const Json& config) { return model_from_hugging_face(config, "config.json"); }

std::vector<std::string> mtp_names_of(const Model& model) { return tensor_names(parameter_table(model)); }

void expect_mtp_names(const Model& model, const std::vector<std::string>& expected) {
  const std::vector<std::string> names = mtp_names_of(model);
  for (const std::string& name : expected) EXPECT_TRUE(std::ranges::find(names, name) != names.end()) << name;
}

std::string mtp_refusal(const Json& config) {
  try {
    with_mtp(plain_model(config));
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

TEST(MtpLayer, LiesBehindDeepSeeksLayersAndHasExpertsAsTheLast) {
  const Model model = with_mtp(plain_model(deepseek_config()));
  const std::string path = "model.layers.2.";
  expect_mtp_names(
      model, {path + "enorm.weight", path + "hnorm.weight", path + "eh_proj.weight",
              path + "input_layernorm.weight", path + "self_attn.kv_b_proj.weight", path + "mlp.gate.weight",
              path + "mlp.gate.e_score_correction_bias", path + "mlp.experts.3.down_proj.weight",
              path + "mlp.shared_experts.up_proj.weight", path + "shared_head.norm.weight",
              "model.norm.weight", "lm_head.weight"});
  EXPECT_EQ(model.layers(), 2);
  EXPECT_GT(std::ssize(mtp_names_of(model)), std::ssize(mtp_names_of(plain_model(deepseek_config()))));
}

TEST(MtpLayer, IsAModuleOfQwensThatAttends) {
  expect_mtp_names(with_mtp(plain_model(qwen_config())),
                   {"mtp.fc.weight", "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight",
                    "mtp.layers.0.self_attn.q_proj.weight", "mtp.layers.0.self_attn.q_norm.weight",
                    "mtp.layers.0.mlp.down_proj.weight", "mtp.norm.weight"});
}

TEST(MtpLayer, ReadsTheEmbeddingAndIsPartOfTheHeadsBuckets) {
  const ParameterTable table = parameter_table(with_mtp(plain_model(deepseek_config())));
  const Operation& head = table.program.at(table.program.head());
  EXPECT_EQ(head.buckets.front(), table.embedding().index);
  for (const Bucket& bucket : table.buckets) {
    for (const Parameter& parameter : bucket.parameters) {
      EXPECT_EQ(parameter.of_mtp, parameter.name.starts_with("mtp."));
      EXPECT_TRUE(!parameter.of_mtp || bucket.position == table.program.head());
    }
  }
}

TEST(MtpLayer, CountsAsWorkAndBytesOfItsOwn) {
  const Model plain = plain_model(deepseek_config()), model = with_mtp(plain);
  const Kind &head = *model.kinds().back(), &without = *plain.kinds().back();
  const TokenWork layer = model.kinds()[2]->work();
  EXPECT_EQ(head.work().products, without.work().products);
  EXPECT_EQ(without.mtp_work().products, 0);
  EXPECT_EQ(head.mtp_work().products, layer.products + 12 * 24 + 12 * 33);
  EXPECT_EQ(head.mtp_work().trained, layer.trained + 12 * 24 + 12 * 33);
  EXPECT_EQ(head.mtp_work().attention, layer.attention);
  EXPECT_EQ(head.mtp_bytes({.tp = 1}, 4).saved, model.kinds()[2]->bytes({.tp = 1}, 4).saved + 7 * 4 * 12);
}

TEST(MtpLayer, IsRememberedByCheckpointsAndLeftOutOfConfigurations) {
  const Model plain = plain_model(deepseek_config()), model = with_mtp(plain);
  EXPECT_TRUE(is_tuned(model));
  EXPECT_TRUE(with_tuning(plain, tuning_to_json(model), "manifest") == model);
  const Model partly =
      frozen(model, {"model.layers.0", "model.layers.2.self_attn", "model.layers.2.eh_proj"});
  EXPECT_TRUE(with_tuning(plain, tuning_to_json(partly), "manifest") == partly);
  EXPECT_TRUE(untuned(partly) == plain);
  EXPECT_TRUE(as_exported(partly) == model);
  EXPECT_EQ(config_json(model), config_json(plain));
}

TEST(MtpLayer, IsRefusedWhereThereIsNone) {
  Json config = deepseek_config();
  config["num_nextn_predict_layers"] = 0;
  EXPECT_NE(mtp_refusal(config).find("names no layers that predict further tokens"), std::string::npos);
  config["num_nextn_predict_layers"] = 3;
  EXPECT_NE(mtp_refusal(config).find("names 3 MTP layers"), std::string::npos);
  Json other = qwen_config();
  other["mtp_use_dedicated_embeddings"] = true;
  EXPECT_NE(mtp_refusal(other).find("mtp_use_dedicated_embeddings"), std::string::npos);
  EXPECT_NE(mtp_refusal(config_json(exported_outline())).find("no layers of llama"), std::string::npos);
}

}  // namespace
}  // namespace sluice::model
