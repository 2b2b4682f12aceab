#include "corpus/word_labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "corpus/documents.h"
#include "corpus/tokenizer.h"

namespace sluice::corpus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Ids = std::vector<int32_t>;

// A token for each byte but z, which has none; a mark in front of what it encodes, where it has one.
class Bytes : public Tokenizer {
 public:
  explicit Bytes(std::string mark = "", int32_t begin = -1, int32_t end = -1) : mark_(std::move(mark)) {
    begin_id_ = begin;
    end_id_ = end;
  }
  std::vector<Ids> encode_all(std::span<const std::string> texts) const override {
    std::vector<Ids> all;
    for (const std::string& text : texts) {
      Ids& ids = all.emplace_back();
      for (const char byte : mark_ + text) {
        if (byte != 'z') ids.push_back(static_cast<unsigned char>(byte));
      }
    }
    return all;
  }
  std::vector<std::string> decode_all(std::span<const Ids> ids) const override {
    std::vector<std::string> texts;
    for (const Ids& each : ids) {
      std::string& text = texts.emplace_back();
      for (const int32_t id : each) text += static_cast<char>(id);
    }
    return texts;
  }

 private:
  std::string mark_;
};

TEST(Words, HaveABlankInFrontWhereTheTokenizerPutsNothingThere) {
  const std::vector<std::vector<std::string>> texts = {{"ab", "c", "", " d"}, {}, {"e"}};
  const auto joined = encode_words(Bytes(), texts);
  ASSERT_EQ(joined.size(), 3u);
  EXPECT_THAT(joined[0], ElementsAre(Ids{'a', 'b'}, Ids{' ', 'c'}, Ids{}, Ids{' ', 'd'}));
  EXPECT_THAT(joined[1], IsEmpty());
  EXPECT_THAT(joined[2], ElementsAre(Ids{'e'}));  // the first of its text
  const auto marked = encode_words(Bytes(" "), texts);
  EXPECT_THAT(marked[0], ElementsAre(Ids{' ', 'a', 'b'}, Ids{' ', 'c'}, Ids{}, Ids{' ', ' ', 'd'}));
  EXPECT_THAT(encode_words(Bytes(), {}), IsEmpty());
}

TEST(WordLabels, StandAtTheFirstIdOrAtAll) {
  const std::vector<Ids> words = {{1, 2}, {}, {3}, {4, 5, 6}};
  const Bytes plain;
  const std::string labels = R"(["B-a", "O", -100, 7])";
  LabelledTokens first = labelled_tokens(words, labels, LabelledPieces::kFirst, plain);
  EXPECT_THAT(first.ids, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(first.labels, R"(["B-a",null,null,7,null,null])");
  EXPECT_EQ(labelled_tokens(words, labels, LabelledPieces::kAll, plain).labels,
            R"(["B-a","B-a",null,7,7,7])");
  first = labelled_tokens(words, labels, LabelledPieces::kFirst, Bytes("", 101, 102));
  EXPECT_THAT(first.ids, ElementsAre(101, 1, 2, 3, 4, 5, 6, 102));
  EXPECT_EQ(first.labels, R"([null,"B-a",null,null,7,null,null,null])");
}

TEST(WordLabels, AreNoneWhereNoWordHasAnId) {
  EXPECT_EQ(labelled_tokens({{}, {}}, "[0, 1]", LabelledPieces::kAll, Bytes("", 101)).labels, "");
}

std::optional<DocumentLabel> label_of_line(const std::string& line, DocumentCounts& counts,
                                           DocumentOptions options = {}) {
  if (options.label_key.empty()) options.label_key = "label";
  return label_of({RawDocument::Form::kJson, line, "f:3", 0}, options, counts);
}

TEST(WordLabels, AreFoundUnderTheKeysOfTheirDataSets) {
  DocumentCounts counts;
  for (const char* const words : {"tokens", "words"}) {
    for (const char* const labels : {"labels", "ner_tags", "tags", "label"}) {
      const auto found = label_of_line(
          base::text(R"({"text": "a b", ")", words, R"(": ["a", "b"], ")", labels, R"(": [0, "O"]})"),
          counts);
      if (std::string(labels) == "label") {  // the usual key is of the text
        EXPECT_THAT(found->words, IsEmpty());
        continue;
      }
      ASSERT_TRUE(found);
      EXPECT_THAT(found->words, ElementsAre("a", "b"));
      EXPECT_EQ(found->json, R"([0,"O"])");
    }
  }
  const DocumentOptions named{.text_key = "w", .label_key = "l"};
  EXPECT_THAT(label_of_line(R"({"w": ["é", ""], "l": [1, 2]})", counts, named)->words, ElementsAre("é", ""));
  EXPECT_THAT(label_of_line(R"({"text": ["a"], "tags": [1]})", counts)->words, ElementsAre("a"));
  EXPECT_THAT(label_of_line(R"({"text": "a", "label": 1, "tokens": ["b"], "tags": [2]})", counts)->words,
              IsEmpty());
  EXPECT_EQ(counts.refused.count, 0);
}

TEST(WordLabels, FaultsAreNamed) {
  const std::pair<const char*, const char*> faults[] = {
      {R"({"tokens": ["a", "b"], "tags": [0]})",
       "f:3: there are 2 words under 'tokens' and 1 label under 'tags': give one for each word"},
      {R"({"tokens": ["a", 5], "tags": [0, 1]})", "word 1 under 'tokens' is 5: give a list of texts"},
      {R"({"tokens": [], "tags": []})", "there is no word under 'tokens'"},
      {R"({"text": ["a"], "label": 3})", "the label under 'label' is 3, and 'text' is a list of words"},
      {R"({"tokens": ["a"]})", "there is no 'label'"},
      {R"({"tokens": "a", "tags": [0]})", "there is no 'label'"}};
  for (const auto& [line, said] : faults) {
    DocumentCounts counts;
    EXPECT_FALSE(label_of_line(line, counts)) << line;
    ASSERT_EQ(counts.refused.count, 1) << line;
    EXPECT_THAT(counts.refused.first.front(), HasSubstr(said));
  }
}

}  // namespace
}  // namespace sluice::corpus
