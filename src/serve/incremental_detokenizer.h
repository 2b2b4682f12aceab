// The text of tokens during generation; each token is decoded once.
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

// The text of an output up to its first stop string, in pieces. Bytes that may still become a stop string or
// the rest of a character are held back. The tokenizer must outlive it.
class IncrementalDetokenizer {
 public:
  IncrementalDetokenizer(const corpus::Tokenizer& tokenizer, const std::vector<int64_t>& prompt,
                         std::vector<std::string> stops);

  // The new text since the last call. `output` has grown since then.
  std::string new_text(const generate::Output& output, bool finished);
  // The same in two steps, so that outputs of many requests are decoded together: the tokens to decode, if
  // there are any, and the new text given their decoded text.
  std::optional<corpus::Continuation> pending(const generate::Output& output) const;
  std::string new_text(const generate::Output& output, bool finished,
                       const std::optional<std::string>& decoded);
  bool stopped() const { return stopped_; }

 private:
  void settle(const std::vector<int64_t>& tokens, bool finished, std::string piece);
  size_t held_back() const;

  const corpus::Tokenizer* tokenizer_;
  std::shared_ptr<const std::vector<std::string>> stops_;
  std::vector<int64_t> before_;  // the last decoded tokens, prompt included
  size_t decoded_ = 0;           // decoded tokens
  size_t settled_ = 0;           // bytes of text_ from decoded tokens; later ones are decoded again
  std::string text_;
  size_t shown_ = 0;  // bytes shown
  bool stopped_ = false;
};

// A stop condition: whether a stop string stands in the output. To be called after each token of one output.
// The tokenizer must outlive it.
std::function<bool(const generate::Output& output)> ends_at_stop(const corpus::Tokenizer& tokenizer,
                                                                 const std::vector<int64_t>& prompt,
                                                                 std::vector<std::string> stops);

// The text up to the first stop.
std::string truncate_at_stop(const std::string& text, const std::vector<std::string>& stops);

}  // namespace sluice::serve
