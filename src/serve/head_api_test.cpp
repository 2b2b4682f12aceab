#include "serve/head_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace sluice::serve {
namespace {

using base::Json;
using testing::ElementsAre;
using testing::HasSubstr;

// A token for each byte, one that begins, and maybe one that ends.
class Bytes final : public corpus::Tokenizer {
 public:
  explicit Bytes(int32_t end_id = -1) {
    vocabulary_ = 257;
    begin_id_ = 256;
    end_id_ = end_id;
  }
  std::vector<std::vector<int32_t>> encode_all(std::span<const std::string> texts) const override {
    std::vector<std::vector<int32_t>> all;
    for (const std::string& text : texts) {
      all.emplace_back();
      for (const char c : text) all.back().push_back(static_cast<unsigned char>(c));
    }
    return all;
  }
  std::vector<std::string> decode_all(std::span<const std::vector<int32_t>> ids) const override {
    return std::vector<std::string>(ids.size());
  }
};

const Bytes kTokenizer;
const ServedHead kEmbeds{.output = ServedHead::Output::kEmbedding, .width = 4};
const ServedHead kReward{.output = ServedHead::Output::kNumbers,
                         .width = 1,
                         .labels = {"good"},
                         .activation = ServedHead::Activation::kSigmoid};
const ServedHead kClasses{.output = ServedHead::Output::kNumbers,
                          .width = 3,
                          .labels = {"a", "b", "c"},
                          .activation = ServedHead::Activation::kSoftmax};

HeadRequestReader reader_of(const ServedHead& head) {
  return {.tokenizer = &kTokenizer,
          .model = "mine",
          .vocabulary = 257,
          .context_length = 8,
          .head = head,
          .pair_template = "{query}>{document}",
          .limits = {.prompts = 4, .numbers = 12}};
}

HeadRequest read(const ServedHead& head, HeadEndpoint endpoint, const Json& body) {
  return reader_of(head).read(body.dump(), endpoint);
}

std::string refusal(const ServedHead& head, HeadEndpoint endpoint, const Json& body) {
  try {
    read(head, endpoint, body);
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "nothing";
}

Json response(const HeadRequest& request, const ServedHead& head,
              const std::vector<std::vector<float>>& numbers) {
  return Json::parse(head_response_body(request, {.id = "1", .model = "mine"}, head, numbers));
}

TEST(HeadApi, PathsNameEndpointsWithOrWithoutAVersion) {
  for (const char* path : {"/v1/rerank", "/rerank", "/v2/rerank"})
    EXPECT_EQ(head_endpoint_of(path), HeadEndpoint::kRerank) << path;
  EXPECT_EQ(head_endpoint_of("/v1/embeddings"), HeadEndpoint::kEmbeddings);
  EXPECT_EQ(head_endpoint_of("/score"), HeadEndpoint::kScore);
  for (const char* path : {"/v2/score", "/v1rerank", "/v1/rerank/", "/v1/v1/score", ""})
    EXPECT_EQ(head_endpoint_of(path), std::nullopt) << path;
}

TEST(HeadApi, InputsAreTextsOrIdsOneOrSeveral) {
  const auto texts = [](const Json& input) {
    return read(kEmbeds, HeadEndpoint::kEmbeddings, {{"input", input}, {"model", "mine"}}).texts;
  };
  EXPECT_THAT(texts("ab"), ElementsAre(ElementsAre(256, 'a', 'b')));
  EXPECT_THAT(
      read(kEmbeds, HeadEndpoint::kEmbeddings, {{"input", "ab"}, {"add_special_tokens", false}}).texts,
      ElementsAre(ElementsAre('a', 'b')));
  EXPECT_THAT(texts({"a", "b"}), ElementsAre(ElementsAre(256, 'a'), ElementsAre(256, 'b')));
  EXPECT_THAT(texts({1, 2, 3}), ElementsAre(ElementsAre(1, 2, 3)));
  EXPECT_THAT(texts(Json::array({{1}, {2, 3}})), ElementsAre(ElementsAre(1), ElementsAre(2, 3)));
}

TEST(HeadApi, TextsEndAsTheTokenizerEndsThem) {
  const Bytes ends(3);
  HeadRequestReader reader = reader_of(kEmbeds);
  reader.tokenizer = &ends;
  const auto texts = [&](const Json& body) {
    return reader.read(body.dump(), HeadEndpoint::kEmbeddings).texts;
  };
  EXPECT_THAT(texts({{"input", "ab"}}), ElementsAre(ElementsAre(256, 'a', 'b', 3)));
  EXPECT_THAT(texts({{"input", "abc"}, {"truncate_prompt_tokens", 3}}),
              ElementsAre(ElementsAre(256, 'a', 3)));
  EXPECT_THAT(texts({{"input", "ab"}, {"add_special_tokens", false}}), ElementsAre(ElementsAre('a', 'b')));
  EXPECT_THAT(texts({{"input", {1, 2}}}), ElementsAre(ElementsAre(1, 2)));
}

TEST(HeadApi, WrongInputsAreNamed) {
  const auto told = [](const Json& body) { return refusal(kEmbeds, HeadEndpoint::kEmbeddings, body); };
  EXPECT_THAT(told(Json::object()), HasSubstr("input is missing"));
  EXPECT_THAT(told({{"input", Json::array()}}), HasSubstr("input is empty"));
  EXPECT_THAT(told({{"input", {"a", " "}}}), HasSubstr("input[1] is an empty text"));
  EXPECT_THAT(told({{"input", {"a", 3}}}), HasSubstr("input[1] is 3"));
  EXPECT_THAT(told({{"input", Json::array({Json::array()})}}), HasSubstr("input[0] is []"));
  EXPECT_THAT(told({{"input", {1, 257}}}), HasSubstr("give ids from 0 to 256"));
  EXPECT_THAT(told({{"input", {"1", "2", "3", "4", "5"}}}), HasSubstr("more than 4"));
  EXPECT_THAT(told({{"input", "123456789"}}), HasSubstr("has 10 tokens, more than the 8"));
  EXPECT_THAT(told({{"input", {"1", "2", "3", "4"}}}), HasSubstr("asks for 16 numbers, more than 12"));
  EXPECT_THAT(told({{"input", "a"}, {"dimensions", 5}}), HasSubstr("dimensions"));
  EXPECT_THAT(told({{"input", "a"}, {"dimensions", 0}}), HasSubstr("dimensions"));
  EXPECT_THAT(told({{"input", "a"}, {"encoding_format", "hex"}}), HasSubstr("give float or base64"));
  EXPECT_THAT(told({{"input", "a"}, {"normalize", 1}}), HasSubstr("normalize"));
  EXPECT_THAT(told({{"input", "a"}, {"temperature", 1}}), HasSubstr("temperature"));
  EXPECT_THAT(told({{"input", "a"}, {"model", "other"}}), HasSubstr("'other' is not served here"));
  EXPECT_THAT(told({{"messages", Json::array({{{"role", "user"}, {"content", "a"}}})}}),
              HasSubstr("no chat template"));
}

TEST(HeadApi, TextsAreCutWhereAsked) {
  const auto kept = [](int64_t most) {
    return read(kEmbeds, HeadEndpoint::kEmbeddings,
                {{"input", "123456789"}, {"truncate_prompt_tokens", most}})
        .texts.front()
        .size();
  };
  EXPECT_EQ(kept(-1), 8U);
  EXPECT_EQ(kept(3), 3U);
  EXPECT_THAT(refusal(kEmbeds, HeadEndpoint::kEmbeddings, {{"input", "1"}, {"truncate_prompt_tokens", 9}}),
              HasSubstr("truncate_prompt_tokens"));
  EXPECT_THAT(refusal(kEmbeds, HeadEndpoint::kEmbeddings, {{"input", "1"}, {"truncate_prompt_tokens", 0}}),
              HasSubstr("truncate_prompt_tokens is 0"));
}

TEST(HeadApi, EmbeddingsHaveLengthOneWhateverTheirDimensions) {
  HeadRequest request = read(kEmbeds, HeadEndpoint::kEmbeddings, {{"input", "a"}});
  Json told = response(request, kEmbeds, {{3, 4, 0, 12}});
  EXPECT_EQ(told.at("object"), "list");
  EXPECT_EQ(told.at("usage"), Json({{"prompt_tokens", 2}, {"total_tokens", 2}}));
  EXPECT_THAT(told.at("data").at(0).at("embedding").get<std::vector<float>>(),
              testing::Pointwise(testing::FloatEq(), {3 / 13.0F, 4 / 13.0F, 0.0F, 12 / 13.0F}));
  request = read(kEmbeds, HeadEndpoint::kEmbeddings, {{"input", "a"}, {"normalize", false}});
  EXPECT_EQ(response(request, kEmbeds, {{3, 4, 0, 12}}).at("data").at(0).at("embedding"),
            Json({3, 4, 0, 12}));
  request = read(kEmbeds, HeadEndpoint::kEmbeddings, {{"input", "a"}, {"dimensions", 2}});
  told = response(request, kEmbeds, {{3, 4, 0, 12}});
  EXPECT_THAT(told.at("data").at(0).at("embedding").get<std::vector<float>>(),
              testing::Pointwise(testing::FloatEq(), {0.6F, 0.8F}));
}

TEST(HeadApi, Base64HasFloatsLeastSignificantByteFirst) {
  const auto encoded = [](int64_t dimensions) {
    const HeadRequest request =
        read(kEmbeds, HeadEndpoint::kEmbeddings,
             {{"input", "a"}, {"encoding_format", "base64"}, {"dimensions", dimensions}});
    return response(request, kEmbeds, {{2, 0, 0, 0}}).at("data").at(0).at("embedding").get<std::string>();
  };
  EXPECT_EQ(encoded(1), "AACAPw==");  // 00 00 80 3f
  EXPECT_EQ(encoded(2), "AACAPwAAAAA=");
  EXPECT_EQ(encoded(3), "AACAPwAAAAAAAAAA");
}

TEST(HeadApi, DocumentsAreRankedByCosine) {
  const Json body = {{"query", "q"}, {"documents", {"x", {{"text", "y"}}, "z"}}, {"top_n", 2}};
  const HeadRequest request = read(kEmbeds, HeadEndpoint::kRerank, body);
  EXPECT_EQ(request.texts.size(), 4U);
  const Json told = response(request, kEmbeds, {{1, 0, 0, 0}, {0, 1, 0, 0}, {5, 0, 0, 0}, {1, 1, 0, 0}});
  const Json& results = told.at("results");
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results.at(0).at("index"), 1);
  EXPECT_EQ(results.at(0).at("document").at("text"), "y");
  EXPECT_FLOAT_EQ(results.at(0).at("relevance_score").get<float>(), 1);
  EXPECT_EQ(results.at(1).at("index"), 2);
  EXPECT_FLOAT_EQ(results.at(1).at("relevance_score").get<float>(), std::sqrt(0.5F));
}

TEST(HeadApi, AHeadOfOneNumberReadsAQueryAndADocumentAsOneText) {
  const Json body = {{"query", "{document}"},
                     {"documents", {"x"}},
                     {"return_documents", false},
                     {"truncate_prompt_tokens", -1}};
  HeadRequest request = read(kReward, HeadEndpoint::kRerank, body);
  EXPECT_THAT(request.texts, ElementsAre(ElementsAre(256, '{', 'd', 'o', 'c', 'u', 'm', 'e')));
  const Json told = response(request, kReward, {{0}});
  EXPECT_FALSE(told.at("results").at(0).contains("document"));
  EXPECT_EQ(told.at("results").at(0).at("relevance_score"), 0.5);
  request = read(kReward, HeadEndpoint::kScore,
                 {{"text_1", "q"}, {"text_2", {"x", "y"}}, {"use_activation", false}});
  EXPECT_THAT(request.texts, ElementsAre(ElementsAre(256, 'q', '>', 'x'), ElementsAre(256, 'q', '>', 'y')));
  EXPECT_EQ(response(request, kReward, {{-2}, {3}}).at("data").at(1).at("score"), 3);
}

TEST(HeadApi, ScoresCompareOneWithAllOrEachWithItsOwn) {
  const auto told = [](const Json& first, const Json& second) {
    return refusal(kEmbeds, HeadEndpoint::kScore, {{"text_1", first}, {"text_2", second}});
  };
  EXPECT_THAT(told({"a", "b"}, {"c"}), HasSubstr("text_2 has 1 texts beside 2"));
  const HeadRequest request =
      read(kEmbeds, HeadEndpoint::kScore, {{"text_1", {"a", "b"}}, {"text_2", {"c", "d"}}});
  const Json scores =
      response(request, kEmbeds, {{1, 0, 0, 0}, {0, 1, 0, 0}, {1, 0, 0, 0}, {1, 0, 0, 0}}).at("data");
  EXPECT_EQ(scores.at(0).at("score"), 1);
  EXPECT_EQ(scores.at(1).at("score"), 0);
}

TEST(HeadApi, ClassesHaveProbabilitiesAndPoolingHasTheNumbersThemselves) {
  const HeadRequest request = read(kClasses, HeadEndpoint::kClassify, {{"input", "a"}});
  const Json told = response(request, kClasses, {{1, 1, 1}}).at("data").at(0);
  EXPECT_THAT(told.at("probs").get<std::vector<float>>(), testing::Each(testing::FloatEq(1 / 3.0F)));
  EXPECT_EQ(told.at("num_classes"), 3);
  EXPECT_EQ(response(request, kClasses, {{0, 5, 1}}).at("data").at(0).at("label"), "b");
  const HeadRequest pooled = read(kClasses, HeadEndpoint::kPooling, {{"input", "a"}});
  EXPECT_EQ(response(pooled, kClasses, {{0, 5, 1}}).at("data").at(0).at("data"), Json({0.0, 5.0, 1.0}));
}

TEST(HeadApi, NumbersThatAreNotFiniteAreAFaultOfTheModel) {
  const HeadRequest request = read(kEmbeds, HeadEndpoint::kEmbeddings, {{"input", "a"}});
  EXPECT_THROW(response(request, kEmbeds, {{1, NAN, 0, 0}}), base::RunError);
}

TEST(HeadApi, HeadsSayWhatTheyDoNotAnswer) {
  EXPECT_THAT(kReward.refusal(HeadEndpoint::kEmbeddings),
              HasSubstr("ends in one number a text and has no embeddings"));
  EXPECT_THAT(kClasses.refusal(HeadEndpoint::kRerank), HasSubstr("ends in 3 classes"));
  EXPECT_THAT(kEmbeds.refusal(HeadEndpoint::kClassify), HasSubstr("embeddings of 4 numbers"));
  EXPECT_EQ(kReward.refusal(HeadEndpoint::kRerank), "");
  EXPECT_EQ(kEmbeds.refusal(HeadEndpoint::kPooling), "");
}

TEST(HeadApi, ATemplateOfPairsHasBothOnce) {
  require_pair_template("Q: {query}\nA: {document}");
  for (const char* wrong : {"", "{query}", "{document}", "{query}{query}{document}"})
    EXPECT_THROW(require_pair_template(wrong), base::InputError) << wrong;
}

}  // namespace
}  // namespace sluice::serve
