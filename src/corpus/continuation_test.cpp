#include "corpus/continuation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/rng.h"
#include "base/utf8.h"

namespace sluice::corpus {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kBegin = 256;  // behind a token for each byte
constexpr const char* kReplacement = "\uFFFD";

// Bytes as text, where parts that are no letters are shown as replacements.
std::string shown(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t size = base::utf8_character_size(bytes);
    text += size == 0 ? kReplacement : std::string(bytes.substr(0, size));
    bytes.remove_prefix(std::max<size_t>(size, 1));
  }
  return text;
}

bool is_text(std::string_view bytes) { return shown(bytes) == bytes; }

// Ids below 256 are bytes, 256 begins documents, and words stand behind.
class Words : public Tokenizer {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {
    vocabulary_ = kBegin + 1 + std::ssize(words_);
    begin_id_ = kBegin;
  }
  std::vector<std::vector<int32_t>> encode_all(std::span<const std::string>) const override { return {}; }
  std::vector<std::string> decode_all(std::span<const std::vector<int32_t>> ids) const override {
    std::vector<std::string> texts;
    for (const std::vector<int32_t>& each : ids) texts.push_back(decoded(each));
    return texts;
  }

 protected:
  virtual std::string decoded(const std::vector<int32_t>& ids) const = 0;
  std::string token(int32_t id) const {
    if (id < kBegin) return {static_cast<char>(id)};
    return id == kBegin ? "<s>" : words_[static_cast<size_t>(id - kBegin - 1)];
  }

 private:
  std::vector<std::string> words_;
};

// As GPT 2's: all tokens are bytes, which are joined.
class ByteLevel final : public Words {
 public:
  using Words::Words;
  std::string decoded(const std::vector<int32_t>& ids) const override {
    std::string bytes;
    for (const int32_t id : ids) bytes += token(id);
    return shown(bytes);
  }
};

// As Llama 2's: a run of bytes that is no text is no letter at all, and the blank in front of all is left
// out.
class ByteFallback final : public Words {
 public:
  explicit ByteFallback(std::vector<std::string> words) : Words(std::move(words)) {
    for (int32_t byte = 0x80; byte < 0xC0; ++byte) later_bytes_.insert(byte);
  }
  std::string decoded(const std::vector<int32_t>& ids) const override {
    std::string text, run;
    const auto end_run = [&] {
      if (is_text(run)) {
        text += run;
      } else {
        for (size_t i = 0; i < run.size(); ++i) text += kReplacement;
      }
      run.clear();
    };
    for (const int32_t id : ids) {
      if (id < kBegin) {
        run += token(id);
        continue;
      }
      end_run();
      text += token(id);
    }
    end_run();
    return text.starts_with(' ') ? text.substr(1) : text;
  }
};

const ByteFallback kLlama({" Hello", " world", " two", ","});
const ByteLevel kGpt({"Hello", " world", " two", ","});
constexpr int32_t kHello = 257, kWorld = 258, kTwo = 259, kComma = 260;

std::vector<int32_t> bytes_of(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

TEST(Continuation, KeepsTheBlankBehindOtherWords) {
  for (const Tokenizer* tokenizer : std::initializer_list<const Tokenizer*>{&kLlama, &kGpt}) {
    const auto said = [&](std::vector<int64_t> before, std::vector<int32_t> tokens) {
      return text_behind(*tokenizer, continuation_of(*tokenizer, before, tokens));
    };
    EXPECT_EQ(said({kBegin, kHello}, {kWorld, kTwo}), " world two");
    EXPECT_EQ(said({kHello}, {kComma, kWorld}), ", world");
    EXPECT_EQ(said({kHello}, {}), "");
  }
}

TEST(Continuation, BeginsATextBehindItsFirstToken) {
  EXPECT_EQ(text_behind(kLlama, continuation_of(kLlama, std::vector{kBegin}, std::vector{kHello, kWorld})),
            "Hello world");
  EXPECT_EQ(text_behind(kLlama, continuation_of(kLlama, std::vector<int32_t>{}, std::vector{kWorld})),
            "world");
}

TEST(Continuation, LettersOfSeveralTokensComeWithTheirLast) {
  for (const Tokenizer* tokenizer : std::initializer_list<const Tokenizer*>{&kLlama, &kGpt}) {
    const std::vector<int32_t> tokens = bytes_of("\u00e9\U0001F600!");
    EXPECT_THAT(pieces_behind(*tokenizer, {{kHello}, tokens}),
                ElementsAre("", "\u00e9", "", "", "", "\U0001F600", "!"));
    // The prompt begins a character, whose text belongs to the continuation.
    EXPECT_EQ(text_behind(*tokenizer, {{kHello, 0xC3}, {0xA9, '!'}}), "\u00e9!");
    EXPECT_THAT(pieces_behind(*tokenizer, {{kHello, 0xC3}, {0xA9, '!'}}), ElementsAre("\u00e9", "!"));
    // The prompt ends with one of many characters of several bytes.
    std::vector<int32_t> before = bytes_of("\u4e16\u754c\u4f60\u597d\u4e16\u754c\u4f60\u597d");
    EXPECT_EQ(text_behind(*tokenizer, continuation_of(*tokenizer, before, bytes_of("\u754c"))), "\u754c");
    EXPECT_THAT(pieces_behind(*tokenizer, continuation_of(*tokenizer, before, bytes_of("\u754c"))),
                ElementsAre("", "", "\u754c"));
  }
}

TEST(Continuation, WhatIsNoLetterIsShown) {
  for (const Tokenizer* tokenizer : std::initializer_list<const Tokenizer*>{&kLlama, &kGpt}) {
    EXPECT_EQ(text_behind(*tokenizer, {{kHello}, {0xC3, kWorld}}), "\uFFFD world");
    EXPECT_THAT(pieces_behind(*tokenizer, {{kHello}, {0xC3, kWorld}}), ElementsAre("", "\uFFFD world"));
    EXPECT_THAT(pieces_behind(*tokenizer, {{kHello}, {kWorld, 0xC3}}), ElementsAre(" world", "\uFFFD"));
  }
}

TEST(Continuation, PiecesAreTheTextAndPromptAndTextAreTheWhole) {
  base::Rng rng(7);
  const std::vector<std::string> letters = {"a", " ", "\u00e9", "\u4e16", "\U0001F600"};
  for (int i = 0; i < 500; ++i) {
    std::vector<int32_t> ids;
    for (uint64_t n = 1 + rng.below(40); n > 0; --n) {
      if (rng.below(2) == 0) {
        ids.push_back(static_cast<int32_t>(kHello + rng.below(4)));
        continue;
      }
      for (const int32_t byte : bytes_of(letters[rng.below(letters.size())])) ids.push_back(byte);
    }
    const auto cut = static_cast<std::ptrdiff_t>(rng.below(ids.size() + 1));
    const std::vector<int32_t> before(ids.begin(), ids.begin() + cut), tokens(ids.begin() + cut, ids.end());
    for (const Tokenizer* tokenizer : std::initializer_list<const Tokenizer*>{&kLlama, &kGpt}) {
      const Continuation continuation = continuation_of(*tokenizer, before, tokens);
      const std::string text = text_behind(*tokenizer, continuation);
      const std::vector<std::string> pieces = pieces_behind(*tokenizer, continuation);
      EXPECT_EQ(std::accumulate(pieces.begin(), pieces.end(), std::string()), text);
      std::string prompt = tokenizer->decode(before);
      // This decoder loses a whole run of bytes that ends within a character.
      if (tokenizer == &kLlama && prompt.find(kReplacement) != prompt.npos) continue;
      while (prompt.ends_with(kReplacement)) prompt.resize(prompt.size() - 3);  // the cut letter
      EXPECT_EQ(prompt + text, tokenizer->decode(ids)) << testing::PrintToString(ids) << " at " << cut;
    }
  }
}

}  // namespace
}  // namespace sluice::corpus
