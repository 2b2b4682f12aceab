// The text of tokens while they are generated, each decoded once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corpus/continuation.h"
#include "generate/generator.h"

namespace sluice::serve {

// A text behind a prompt up to the first of the stops, told in pieces: of what may still become a stop, and
// of halves of letters, nothing is told. The tokenizer must outlive it.
class IncrementalDetokenizer {
 public:
  IncrementalDetokenizer(const corpus::Tokenizer& tokenizer, const std::vector<int64_t>& prompt,
                         std::vector<std::string> stops);

  // What is new since the last call. `said` has what it had then, and more.
  std::string new_text(const generate::Output& output, bool finished);
  // The same in two steps, so that several texts can be decoded at once: the tokens to decode, nothing where
  // there are none; and the new text, given the decoded one.
  std::optional<corpus::Continuation> pending(const generate::Output& output) const;
  std::string new_text(const generate::Output& output, bool finished,
                       const std::optional<std::string>& decoded);
  bool stopped() const { return stopped_; }

 private:
  void settle(const std::vector<int64_t>& tokens, bool finished, std::string piece);
  size_t held_back() const;

  const corpus::Tokenizer* tokenizer_;
  std::shared_ptr<const std::vector<std::string>> stops_;
  std::vector<int64_t> before_;  // the last tokens in front of those that are not decoded yet
  size_t decoded_ = 0;           // tokens
  size_t settled_ = 0;  // bytes of the text that these say; those behind are decoded again with what follows
  std::string text_;
  size_t shown_ = 0;
  bool stopped_ = false;
};

// Whether a text ends behind the prompt: one of the stops stands in it. To be called with each token more of
// one text. The tokenizer must outlive it.
std::function<bool(const generate::Output& output)> ends_at_stop(const corpus::Tokenizer& tokenizer,
                                                                 const std::vector<int64_t>& prompt,
                                                                 std::vector<std::string> stops);

// The text up to the first stop.
std::string truncate_at_stop(const std::string& text, const std::vector<std::string>& stops);

}  // namespace sluice::serve
