// Models of recurrent layers alone, as their config.json files describe them.
#include <gmock/gmock.h>

#include <string>
#include <utility>

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

using base::Json;
using testing::HasSubstr;

Outline read_recurrent(const Json& config) { return outline_from_hugging_face(config, "config.json"); }

// Codestral Mamba's as published, and fla's defaults.
Json recurrent_config(const std::string& type) {
  Json config = {
      {"model_type", type}, {"hidden_size", 4096}, {"num_hidden_layers", 64}, {"vocab_size", 32768}};
  if (type == "mamba2")
    config.update({{"num_heads", 128}, {"head_dim", 64}, {"n_groups", 8}, {"state_size", 128}});
  if (type == "gla")
    config.update(
        {{"hidden_size", 2048}, {"num_hidden_layers", 24}, {"num_heads", 4}, {"vocab_size", 32000}});
  return config;
}

TEST(OutlineFromHuggingFace, ModelsOfRecurrentLayersAloneAreRead) {
  for (const auto& [type, count] :
       {std::pair("mamba2", int64_t{7'285'403'648}), std::pair("gla", int64_t{1'365'514'240})}) {
    const Outline outline = read_recurrent(recurrent_config(type));
    EXPECT_EQ(parameter_count(outline), count) << type;
    EXPECT_EQ(parameter_count(outline), parameter_table(outline).size()) << type;
    EXPECT_EQ(read_recurrent(Json::parse(config_json(outline).dump())), outline) << type;
    EXPECT_EQ(tp_fault(outline, 4), "") << type;
  }
  const Outline mamba = read_recurrent(recurrent_config("mamba2"));
  EXPECT_EQ(mamba.ffn_hidden, 0);
  const ParameterTable table = parameter_table(mamba);
  EXPECT_EQ(hugging_face_tensors(table.layer(3), table.layer(3).parameters.front()).front().name,
            "backbone.layers.3.norm.weight");
  EXPECT_EQ(hugging_face_tensors(table.embedding(), table.embedding().parameters.front()).front().name,
            "backbone.embeddings.weight");
  const auto fault = [](const char* type, const char* key, const Json& value) {
    Json config = recurrent_config(type);
    config[key] = value;
    try {
      read_recurrent(config);
    } catch (const base::InputError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(fault("mamba2", "num_heads", 100), HasSubstr("num_heads is 100"));
  EXPECT_THAT(fault("mamba2", "use_bias", true), HasSubstr("use_bias is true"));
  EXPECT_THAT(fault("mamba2", "conv_kernel", 1), HasSubstr("'conv_kernel' is 1"));
  EXPECT_THAT(fault("gla", "num_kv_heads", 2), HasSubstr("num_kv_heads is 2"));
  EXPECT_THAT(fault("gla", "use_short_conv", true), HasSubstr("use_short_conv is true"));
  EXPECT_THAT(fault("gla", "feature_map", "relu"), HasSubstr("feature_map is \"relu\""));
  EXPECT_THAT(fault("gla", "expand_k", 0.0005), HasSubstr("expand_k"));
}

}  // namespace
}  // namespace sluice::model
