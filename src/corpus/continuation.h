// The text that tokens add to those in front of them. Decoders treat what they are given as a whole text:
// those of SentencePiece's kind leave out the blank in front of its first word, and no letter begins in the
// middle. So tokens are decoded behind the last ones in front of them, and what those say is taken off again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "corpus/tokenizer.h"

namespace sluice::corpus {

struct Continuation {
  std::vector<int32_t> before;  // the last tokens in front; none: `tokens` begin the text
  std::vector<int32_t> tokens;
};

// Of ids that have any width. As many of `before` are kept as decoding needs; a token that begins documents
// is no text that anything stands behind.
template <typename Before, typename Tokens>
Continuation continuation_of(const Tokenizer& tokenizer, const Before& before, const Tokens& tokens);

// The text of each, where a letter that `before` begins and `tokens` end is theirs.
std::vector<std::string> texts_behind(const Tokenizer& tokenizer,
                                      std::span<const Continuation> continuations);
std::string text_behind(const Tokenizer& tokenizer, const Continuation& continuation);

// By token what it adds, which together is the text. A letter of several tokens comes with the last of them.
std::vector<std::string> pieces_behind(const Tokenizer& tokenizer, const Continuation& continuation);

// What is said behind some tokens, of which it keeps as many as it needs. The tokenizer must outlive it.
class Behind {
 public:
  template <typename Ids>
  Behind(const Tokenizer& tokenizer, const Ids& before)
      : tokenizer_(&tokenizer), before_(continuation_of(tokenizer, before, std::vector<int32_t>()).before) {}

  template <typename Ids>
  std::string text(const Ids& tokens) const {
    return text_behind(*tokenizer_, continuation_of(*tokenizer_, before_, tokens));
  }
  template <typename Ids>
  std::vector<std::string> pieces(const Ids& tokens) const {
    return pieces_behind(*tokenizer_, continuation_of(*tokenizer_, before_, tokens));
  }

 private:
  const Tokenizer* tokenizer_;
  std::vector<int32_t> before_;
};

// That many tokens in front tell how the next ones are said.
inline constexpr int64_t kContextTokens = 16;

template <typename Before, typename Tokens>
Continuation continuation_of(const Tokenizer& tokenizer, const Before& before, const Tokens& tokens) {
  Continuation made;
  for (auto i = std::max<int64_t>(0, std::ssize(before) - kContextTokens); i < std::ssize(before); ++i)
    made.before.push_back(static_cast<int32_t>(before[static_cast<size_t>(i)]));
  std::erase(made.before, tokenizer.begin_id());
  for (const auto id : tokens) made.tokens.push_back(static_cast<int32_t>(id));
  return made;
}

}  // namespace sluice::corpus
