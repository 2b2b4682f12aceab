#include "model/head_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "model/config_json.h"
#include "model/hugging_face.h"
#include "model/parameters.h"
#include "model/test_outline.h"
#include "model/test_tuning.h"

namespace sluice::model {
namespace {

using base::Json;
using testing::HasSubstr;

Json config_with(const Json& changes) {
  Json config = config_json(outline_of_2_heads());
  config.update(changes);
  return config;
}

Outline outline_with_head(const Json& changes) {
  return outline_from_hugging_face(config_with(changes), "config.json");
}

std::string fault(const Json& changes) {
  try {
    outline_with_head(changes);
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

TEST(HeadKeys, ClassesOfSequencesAndTokensAreRead) {
  const Outline sequences = outline_with_head({{"architectures", {"LlamaForSequenceClassification"}},
                                               {"id2label", {{"0", "a"}, {"1", "b"}, {"2", "c"}}}});
  EXPECT_EQ(sequences.head, (HeadStyle{HeadKind::kSequence, 3, /*bias=*/false}));
  const Outline tokens =
      outline_with_head({{"architectures", {"LlamaForTokenClassification"}}, {"num_labels", 5}});
  EXPECT_EQ(tokens.head, (HeadStyle{HeadKind::kTokens, 5, /*bias=*/true}));
  EXPECT_EQ(outline_with_head({{"architectures", {"LlamaModel"}}}).head.kind, HeadKind::kRows);
  EXPECT_EQ(outline_with_head(Json::object()).head, HeadStyle());
}

TEST(HeadKeys, WithoutLabelsTransformersMeansTwo) {
  EXPECT_EQ(outline_with_head({{"architectures", {"LlamaForSequenceClassification"}}}).head.numbers, 2);
}

TEST(HeadKeys, LabelsWithoutANumberAreRefused) {
  EXPECT_THAT(
      fault({{"architectures", {"LlamaForSequenceClassification"}}, {"id2label", {{"1", "a"}, {"2", "b"}}}}),
      HasSubstr("a name for each number from 0 to 1"));
  EXPECT_THAT(fault({{"architectures", {"LlamaForQuestionAnswering"}}}), HasSubstr("architectures"));
}

TEST(HeadKeys, AHeadReplacesTheVocabularyAndItsConfigSaysSo) {
  Outline outline = outline_of_2_heads();
  outline.tie_embeddings = true;
  const Outline made =
      with_head(outline, {HeadKind::kSequence, 2}, {{"no", "yes"}, "single_label_classification"}).outline();
  const Json config = config_json(made);
  EXPECT_EQ(config.at("architectures"), Json::array({"LlamaForSequenceClassification"}));
  EXPECT_EQ(config.at("id2label"), (Json{{"0", "no"}, {"1", "yes"}}));
  EXPECT_EQ(config.at("label2id"), (Json{{"no", 0}, {"yes", 1}}));
  EXPECT_EQ(head_labels(config, 2).names, (std::vector<std::string>{"no", "yes"}));
  const ParameterTable table = parameter_table(made);
  ASSERT_EQ(table.head().parameters.size(), 2U);  // tied embeddings would leave only the norm
  EXPECT_EQ(table.head().parameters.back().tensors, std::vector<std::string>{"score.weight"});
  EXPECT_TRUE(table.head().parameters.back().replicated);
}

TEST(HeadKeys, TensorParallelHasMoreRanksThanNumbers) {
  EXPECT_EQ(tp_fault(with_head(outline_of_2_heads(), {HeadKind::kSequence, 1}, {}), 2), "");
}

TEST(HeadKeys, EmbeddingsHaveNoMatrix) {
  const ParameterTable table =
      parameter_table(with_head(outline_of_2_heads(), {.kind = HeadKind::kRows}, {}));
  EXPECT_EQ(table.head().parameters.size(), 1U);
}

TEST(HeadKeys, AdaptersLeaveTheHeadToBeTrained) {
  Outline outline = with_head(outline_of_2_heads(), {HeadKind::kTokens, 3, /*bias=*/true}, {}).outline();
  adapt(outline, {.rank = 2, .alpha = 4, .targets = {"q_proj"}});
  const ParameterTable table = parameter_table(outline);
  std::vector<std::string> trained;
  for (const Bucket& bucket : table.buckets) {
    if (!bucket.trained || bucket.layer >= 0) continue;
    for (const Parameter& parameter : bucket.parameters) trained.push_back(parameter.name);
  }
  EXPECT_EQ(trained, (std::vector<std::string>{"score", "score_bias"}));
}

}  // namespace
}  // namespace sluice::model
