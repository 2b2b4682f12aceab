#include "corpus/token_texts.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace sluice::corpus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(TokenTexts, OfBothFormsOfAVocabulary) {
  const std::string added = R"(, "added_tokens": [{"id": 3, "content": "<e>"}, {"id": 1, "content": "B"}]})";
  EXPECT_THAT(token_texts(R"({"model": {"vocab": {"b": 1, "a": 0}})" + added, "t.json"),
              ElementsAre("a", "B", "", "<e>"));
  EXPECT_THAT(token_texts(R"({"model": {"vocab": [["x", -1.5], ["y", 0]]}})", "t.json"),
              ElementsAre("x", "y"));
  for (const char* bytes :
       {"{", "{}", R"({"model": {}})", R"({"model": {"vocab": {"a": -1}}})",
        R"({"model": {"vocab": {"a": 1e30}}})", R"({"model": {"vocab": {"a": 10000000}}})"}) {
    EXPECT_THROW(token_texts(bytes, "t.json"), base::InputError) << bytes;
  }
  EXPECT_THROW(token_texts("words", "tokenizer.model"), base::InputError);
}

TEST(TokenTexts, TheFirstIdThatMeansSomethingElseIsNamed) {
  const TokenizerBytes small{"a.json", R"({"model": {"vocab": {"a": 0, "b": 1}}})"};
  const TokenizerBytes larger{"b.json", R"({"model": {"vocab": {"a": 0, "b": 1, "c": 2}}})"};
  const TokenizerBytes other{"c.json", R"({"model": {"vocab": {"a": 0, "c": 1}}})"};
  EXPECT_EQ(difference(small, larger), "");
  EXPECT_EQ(difference(larger, small), "");
  EXPECT_EQ(difference(small, other), "id 1 is 'b' in a.json and 'c' in c.json");
}

}  // namespace
}  // namespace sluice::corpus
