// Families whose attention sees both directions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "model/config_json.h"
#include "model/head_keys.h"
#include "model/hugging_face.h"
#include "model/layer.h"
#include "model/layer_of.h"
#include "model/outline.h"
#include "model/parameters.h"
#include "model/program.h"

namespace sluice::model {
namespace {

using base::Json;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Json modernbert(const Json& changes = Json::object()) {
  Json config = {{"model_type", "modernbert"},
                 {"architectures", {"ModernBertForMaskedLM"}},
                 {"num_hidden_layers", 4},
                 {"hidden_size", 32},
                 {"num_attention_heads", 4},
                 {"intermediate_size", 48},
                 {"vocab_size", 120},
                 {"local_attention", 12},
                 {"global_rope_theta", 80000.0},
                 {"local_rope_theta", 5000.0}};
  config.update(changes);
  return config;
}

Json bert(const Json& changes = Json::object()) {
  Json config = {{"model_type", "bert"},     {"architectures", {"BertForMaskedLM"}},
                 {"num_hidden_layers", 2},   {"hidden_size", 32},
                 {"num_attention_heads", 4}, {"intermediate_size", 48},
                 {"vocab_size", 120},        {"max_position_embeddings", 64}};
  config.update(changes);
  return config;
}

Outline read_encoder(const Json& config) { return outline_from_hugging_face(config, "config.json"); }

std::string encoder_fault(const Json& config) {
  try {
    read_encoder(config);
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> encoder_tensors(const Outline& outline) {
  std::vector<std::string> names;
  const ParameterTable table = parameter_table(outline);
  for (const Bucket& bucket : table.buckets) {
    for (const Parameter& parameter : bucket.parameters) {
      for (const HuggingFaceTensor& tensor : hugging_face_tensors(bucket, parameter))
        names.push_back(tensor.name);
    }
  }
  return names;
}

TEST(EncoderFamilies, ModernBertLooksBothWaysThroughWindowsInMostLayers) {
  const Outline outline = read_encoder(modernbert());
  EXPECT_FALSE(outline.causal);
  EXPECT_EQ(outline.window, 7);  // six on either side, and the token itself
  EXPECT_EQ(outline.rope.theta, 80000.0);
  EXPECT_EQ(outline.window_rope->theta, 5000.0);
  std::vector<bool> windowed;
  for (int64_t layer = 0; layer < 4; ++layer) windowed.push_back(outline.block_type(layer).windowed);
  EXPECT_EQ(windowed, (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(outline.head, (HeadStyle{.kind = HeadKind::kRows, .pooling = Pooling::kMean}));
}

TEST(EncoderFamilies, ModernBertNamesItsTensorsAndNormsNoFirstRows) {
  const std::vector<std::string> names = encoder_tensors(read_encoder(
      modernbert({{"architectures", {"ModernBertForSequenceClassification"}}, {"num_labels", 3}})));
  for (const char* name : {"model.embeddings.tok_embeddings.weight", "model.embeddings.norm.weight",
                           "model.layers.0.attn.Wqkv.weight", "model.layers.1.attn_norm.weight",
                           "model.layers.3.mlp.Wi.weight", "model.final_norm.weight", "head.dense.weight",
                           "head.norm.weight", "classifier.weight", "classifier.bias"})
    EXPECT_THAT(names, Contains(name));
  EXPECT_THAT(names, Not(Contains("model.layers.0.attn_norm.weight")));
}

TEST(EncoderFamilies, ClassesPoolAsTheFileSays) {
  const Json classes = {{"architectures", {"ModernBertForSequenceClassification"}}};
  Json mean = classes;
  mean["classifier_pooling"] = "mean";
  EXPECT_EQ(read_encoder(modernbert(classes)).head.pooling, Pooling::kCls);
  EXPECT_EQ(read_encoder(modernbert(mean)).head.pooling, Pooling::kMean);
  mean["classifier_pooling"] = "max";
  EXPECT_THAT(encoder_fault(modernbert(mean)), HasSubstr("computes only cls or mean"));
  EXPECT_EQ(read_encoder(bert({{"architectures", {"BertForSequenceClassification"}}})).head.pooling,
            Pooling::kCls);
}

TEST(EncoderFamilies, AHeadTakesItsPoolingIntoTheFile) {
  const Outline made =
      with_head(read_encoder(modernbert()),
                {.kind = HeadKind::kSequence, .numbers = 2, .pooling = Pooling::kMean}, {{"no", "yes"}, ""})
          .outline();
  EXPECT_EQ(config_json(made).at("classifier_pooling"), "mean");
  EXPECT_EQ(made.head.pooling, Pooling::kMean);
  EXPECT_TRUE(made.head.neck && made.head.bias);
  EXPECT_THROW(with_head(read_encoder(modernbert()), {HeadKind::kSequence, 2}, {}), base::InputError);
  EXPECT_THROW(with_head(read_encoder(bert()),
                         {.kind = HeadKind::kSequence, .numbers = 2, .pooling = Pooling::kMean}, {}),
               base::InputError);
  const Outline rows = with_head(made, {.kind = HeadKind::kRows, .pooling = Pooling::kCls}, {}).outline();
  EXPECT_EQ(rows.head, (HeadStyle{.kind = HeadKind::kRows, .pooling = Pooling::kCls}));
}

TEST(EncoderFamilies, BertNormsSumsAndLearnsPositions) {
  const Outline outline =
      read_encoder(bert({{"architectures", {"BertForSequenceClassification"}}, {"num_labels", 3}}));
  EXPECT_EQ(outline.positions, 64);
  EXPECT_EQ(outline.norm_place, NormPlace::kOfSum);
  const std::vector<std::string> names = encoder_tensors(outline);
  for (const char* name :
       {"bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight",
        "bert.embeddings.token_type_embeddings.weight", "bert.embeddings.LayerNorm.bias",
        "bert.encoder.layer.1.attention.self.key.bias",
        "bert.encoder.layer.0.attention.output.LayerNorm.weight",
        "bert.encoder.layer.1.intermediate.dense.weight", "bert.encoder.layer.1.output.LayerNorm.bias",
        "bert.pooler.dense.weight", "classifier.bias"})
    EXPECT_THAT(names, Contains(name));
  EXPECT_THAT(encoder_fault(bert({{"position_embedding_type", "relative_key"}})),
              HasSubstr("position_embedding_type"));
}

// A token's multiply-adds with the tokens that it sees.
TEST(EncoderFamilies, AttentionCountsBothSides) {
  const Outline both = read_encoder(modernbert());
  Outline before = both;
  before.causal = true;
  before.block_types = {{}, {.windowed = true}, {.windowed = true}, {}};
  for (const int64_t position : {2, 4}) {
    const TokenWork own = Program(both).kind_at(position).work();
    const TokenWork half = Program(before).kind_at(position).work();
    EXPECT_EQ(own.attention, 2 * half.attention);
    EXPECT_EQ(own.products, half.products);
    EXPECT_EQ(own.window, half.window);
  }
}

}  // namespace
}  // namespace sluice::model
