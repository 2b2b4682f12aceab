#include "corpus/turn_ends.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "corpus/temporary_directory.h"

namespace sluice::corpus {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kTokenizer = R"({
  "added_tokens": [{"id": 10, "content": "<|im_start|>", "special": true}, {"id": 11, "content": "<|im_end|>", "special": true},
                   {"id": 12, "content": "</think>", "special": false}, {"id": 13, "content": "<|user|>", "special": true}],
  "model": {"type": "BPE", "vocab": {"y": 1, "Ċ": 2, "Ġ": 3, "ĠĊ": 4, "n": 5}}})";

class TurnEnds : public testing::Test {
 protected:
  using Document = std::pair<std::vector<int32_t>, std::vector<uint8_t>>;
  std::vector<TurnEnd> of(const std::vector<Document>& documents, const char* tokenizer = kTokenizer) {
    IndexedWriter writer(directory_.path() / "corpus", {.vocabulary = 20, .mask = MaskFile::kWrite});
    for (const auto& [tokens, mask] : documents) writer.add(tokens, mask);
    writer.commit();
    return turn_ends(IndexedCorpus(directory_.path() / "corpus"), tokenizer, "tokenizer.json");
  }
  TemporaryDirectory directory_;
};

TEST_F(TurnEnds, AreTheSpecialTokensBehindWhichThereAreBlanksAlone) {
  EXPECT_THAT(of({{{10, 1, 11, 2, 10, 5, 11, 4}, {0, 0, 0, 0, 0, 1, 1, 1}}}),
              ElementsAre(TurnEnd{11, "<|im_end|>"}));
  EXPECT_THAT(of({{{1, 11}, {0, 1}}, {{1, 13, 1, 5}, {1, 1, 0, 0}}}),
              ElementsAre(TurnEnd{11, "<|im_end|>"}, TurnEnd{13, "<|user|>"}));
}

TEST_F(TurnEnds, AreNoneWhereTextFollowsOrNothingSpecialEndsThem) {
  EXPECT_THAT(of({{{10, 11, 5}, {0, 1, 1}}}), IsEmpty());
  EXPECT_THAT(of({{{1, 12, 2}, {1, 1, 1}}}), IsEmpty()) << "a thought's end is no turn's";
  EXPECT_THAT(of({{{1, 11}, {0, 0}}}), IsEmpty()) << "nothing is learnt";
  EXPECT_THAT(of({{{2, 3}, {1, 1}}}), IsEmpty());
}

TEST_F(TurnEnds, LeaveOutWhatIsRare) {
  std::vector<Document> documents(99, {{1, 11}, {1, 1}});
  documents.push_back({{1, 13}, {1, 1}});
  EXPECT_THAT(of(documents), ElementsAre(TurnEnd{11, "<|im_end|>"}));
}

TEST_F(TurnEnds, KnowBlanksOfScoredPieces) {
  constexpr const char* kUnigram = R"({"added_tokens": [{"id": 4, "content": "</s>", "special": true}],
    "model": {"type": "Unigram", "vocab": [["a", -1], ["▁", -2], ["▁b", -3], ["\n", -4]]}})";
  EXPECT_THAT(of({{{0, 4, 1, 3}, {1, 1, 1, 1}}}, kUnigram), ElementsAre(TurnEnd{4, "</s>"}));
  EXPECT_THAT(of({{{0, 4, 2}, {1, 1, 1}}}, kUnigram), IsEmpty());
}

}  // namespace
}  // namespace sluice::corpus
