#include "serve/incremental_detokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "serve/test_model.h"

namespace sluice::serve {
namespace {

using testing::ElementsAre;

const ByteTokenizer kPieces;

// The texts after each token of an output behind `prompt`.
std::vector<std::string> pieces_of(const std::vector<int64_t>& tokens,
                                   const std::vector<std::string>& stops = {},
                                   const std::vector<int64_t>& prompt = {}) {
  IncrementalDetokenizer text(kPieces, prompt, stops);
  std::vector<std::string> pieces;
  generate::Output output;
  for (size_t i = 0; i < tokens.size(); ++i) {
    output.tokens.push_back(tokens[i]);
    pieces.push_back(text.new_text(output, i + 1 == tokens.size()));
  }
  return pieces;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  return all;
}

TEST(IncrementalDetokenizer, EachTokenAddsItsTextOnceItIsWhole) {
  EXPECT_THAT(pieces_of(ids_of("ab")), ElementsAre("a", "b"));
  EXPECT_THAT(pieces_of(ids_of("\u00e9!\U0001F600")),
              ElementsAre("", "\u00e9", "!", "", "", "", "\U0001F600"));
  EXPECT_THAT(pieces_of({kFirstWord + 4, 'x'}), ElementsAre("one two", "x"));
  // The prompt ends within the character, whose text belongs to the output.
  EXPECT_THAT(pieces_of({0xA9, 'a'}, {}, {'a', 0xC3}), ElementsAre("\u00e9", "a"));
}

TEST(IncrementalDetokenizer, BytesThatAreNoCharacterAreShownAtTheEndAtTheLatest) {
  EXPECT_THAT(pieces_of({'a', 0xC3}), ElementsAre("a", "\uFFFD"));
  EXPECT_EQ(joined(pieces_of({'a', 0xC3, 'b'})), "a\uFFFDb");
}

TEST(IncrementalDetokenizer, WhatMayBecomeAStopIsHeldBackAndNoMore) {
  EXPECT_THAT(pieces_of(ids_of("aababx"), {"abc"}), ElementsAre("", "a", "", "ab", "", "abx"));
  EXPECT_THAT(pieces_of(ids_of("aabc"), {"abc"}), ElementsAre("", "a", "", ""));
  EXPECT_THAT(pieces_of(ids_of("xab"), {"abc", "b!"}), ElementsAre("x", "", "ab"));
  EXPECT_THAT(pieces_of(ids_of("abcab"), {"c"}), ElementsAre("a", "b", "", "", ""))
      << "nothing behind a stop";
}

TEST(IncrementalDetokenizer, StopsBeginAnywhereInATokenAndTheFirstOneCounts) {
  EXPECT_EQ(joined(pieces_of({'x', kFirstWord + 4, 'y'}, {"two"})), "xone ");
  EXPECT_EQ(joined(pieces_of({'x', kFirstWord + 4}, {"two", "ne"})), "xo");
  EXPECT_EQ(joined(pieces_of(ids_of("a\u00e9b"), {"\u00e9"})), "a");
  EXPECT_EQ(joined(pieces_of(ids_of("ab"), {"ab"}, ids_of("ab"))), "") << "the prompt's own text is no stop";
  EXPECT_EQ(joined(pieces_of(ids_of("bc"), {"ab"}, ids_of("a"))), "bc") << "a stop lies in the output alone";
}

TEST(IncrementalDetokenizer, TheConditionEndsAnOutputWithTheTokenThatCompletesAStop) {
  const auto ended = ends_at_stop(kPieces, ids_of("p"), {"cd", "zz"});
  generate::Output output;
  std::vector<bool> told;
  for (const int64_t token : ids_of("abcd")) {
    output.tokens.push_back(token);
    told.push_back(ended(output));
  }
  EXPECT_THAT(told, ElementsAre(false, false, false, true));
}

// The slow twin: all tokens decoded at once, cut at the first stop.
TEST(IncrementalDetokenizer, PiecesAreTheWholeTextUpToItsStop) {
  base::Rng rng(3);
  const std::vector<std::string> letters = {"a", "b", "c", "\u00e9", "\U0001F600", "ab"};
  for (int trial = 0; trial < 400; ++trial) {
    std::string text;
    for (uint64_t n = 1 + rng.below(30); n > 0; --n) text += letters[rng.below(letters.size())];
    std::vector<std::string> stops;
    for (uint64_t n = rng.below(3); n > 0; --n) {
      stops.push_back(letters[rng.below(letters.size())]);
      for (uint64_t more = rng.below(3); more > 0; --more) stops.back() += letters[rng.below(letters.size())];
    }
    EXPECT_EQ(joined(pieces_of(ids_of(text), stops)), truncate_at_stop(text, stops))
        << text << " at " << testing::PrintToString(stops);
  }
}

// News of several tokens at once, as a busy server has them.
TEST(IncrementalDetokenizer, TokensMayComeTogether) {
  IncrementalDetokenizer text(kPieces, {}, {"fg"});
  generate::Output output{.tokens = ids_of("abc")};
  EXPECT_EQ(text.new_text(output, false), "abc");
  EXPECT_EQ(text.pending(output), std::nullopt) << "nothing new is to be decoded";
  output.tokens = ids_of("abcdefgh");
  EXPECT_EQ(text.new_text(output, true), "de");
  EXPECT_TRUE(text.stopped());
}

}  // namespace
}  // namespace sluice::serve
