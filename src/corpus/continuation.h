// The text that tokens add to the tokens in front of them. Decoders take their input for a whole text: they
// drop the blank in front of its first word (SentencePiece) and cannot begin within a character. So tokens
// are decoded together with the last tokens in front of them, whose own text is then removed from the result.
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
  std::vector<int32_t> before;  // the last tokens in front; empty: `tokens` begin the text
  std::vector<int32_t> tokens;
};

// Builds a Continuation from ids of any integer width. It keeps as many of the last tokens of `before` as
// decoding needs, without the token that begins documents, which has no text.
template <typename Before, typename Tokens>
Continuation continuation_of(const Tokenizer& tokenizer, const Before& before, const Tokens& tokens);

// The text of each continuation. A character that `before` begins and `tokens` complete belongs to `tokens`.
std::vector<std::string> texts_behind(const Tokenizer& tokenizer,
                                      std::span<const Continuation> continuations);
std::string text_behind(const Tokenizer& tokenizer, const Continuation& continuation);

// The text that each token adds; joined, the whole text. A character comes with the last of its tokens.
std::vector<std::string> pieces_behind(const Tokenizer& tokenizer, const Continuation& continuation);

// Decodes the text behind given tokens, of which it keeps as many as it needs. The tokenizer must outlive it.
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

// Number of preceding tokens that suffice to decode the next ones.
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
