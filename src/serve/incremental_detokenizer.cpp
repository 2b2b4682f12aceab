#include "serve/incremental_detokenizer.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

namespace sluice::serve {
namespace {

constexpr std::string_view kIncomplete = "\xEF\xBF\xBD";  // U+FFFD: an incomplete character

}  // namespace

IncrementalDetokenizer::IncrementalDetokenizer(const corpus::Tokenizer& tokenizer,
                                               const std::vector<int64_t>& prompt,
                                               std::vector<std::string> stops)
    : tokenizer_(&tokenizer), stops_(std::make_shared<const std::vector<std::string>>(std::move(stops))) {
  const auto kept = std::min<size_t>(prompt.size(), corpus::kContextTokens);
  before_.assign(prompt.end() - static_cast<std::ptrdiff_t>(kept), prompt.end());
}

std::optional<corpus::Continuation> IncrementalDetokenizer::pending(const generate::Output& output) const {
  if (stopped_ || decoded_ == output.tokens.size()) return std::nullopt;
  const std::span<const int64_t> rest = std::span(output.tokens).subspan(decoded_);
  return corpus::continuation_of(*tokenizer_, before_, rest);
}

void IncrementalDetokenizer::settle(const std::vector<int64_t>& tokens, bool finished, std::string piece) {
  const size_t known = settled_;
  const bool breaks_off = piece.ends_with(kIncomplete) && !finished;
  while (breaks_off && piece.ends_with(kIncomplete)) piece.resize(piece.size() - kIncomplete.size());
  text_.resize(settled_);
  text_ += piece;
  if (!breaks_off) {
    settled_ = text_.size();
    before_.insert(before_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(decoded_), tokens.end());
    decoded_ = tokens.size();
    if (std::ssize(before_) > corpus::kContextTokens)
      before_.erase(before_.begin(), before_.end() - corpus::kContextTokens);
  }
  size_t first = std::string::npos;
  for (const std::string& stop : *stops_) {
    const size_t from = known - std::min(known, stop.size() - 1);
    first = std::min(first, text_.find(stop, from));
  }
  if (first == std::string::npos) return;
  text_.resize(first);
  stopped_ = true;
}

// The number of bytes at the end that may begin a stop string.
size_t IncrementalDetokenizer::held_back() const {
  size_t held = 0;
  for (const std::string& stop : *stops_) {
    for (size_t length = std::min(stop.size() - 1, text_.size()); length > held; --length) {
      if (text_.ends_with(std::string_view(stop).substr(0, length))) held = length;
    }
  }
  return held;
}

std::string IncrementalDetokenizer::new_text(const generate::Output& output, bool finished) {
  const std::optional<corpus::Continuation> wanted = pending(output);
  return new_text(output, finished, wanted ? std::optional(text_behind(*tokenizer_, *wanted)) : std::nullopt);
}

std::string IncrementalDetokenizer::new_text(const generate::Output& output, bool finished,
                                             const std::optional<std::string>& decoded) {
  if (decoded) settle(output.tokens, finished, *decoded);
  const size_t end = text_.size() - (finished || stopped_ ? 0 : held_back());
  if (end <= shown_) return "";
  const size_t begin = std::exchange(shown_, end);
  return text_.substr(begin, end - begin);
}

std::string truncate_at_stop(const std::string& whole, const std::vector<std::string>& stops) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops) first = std::min(first, whole.find(stop));
  return whole.substr(0, first);
}

std::function<bool(const generate::Output& output)> ends_at_stop(const corpus::Tokenizer& tokenizer,
                                                                 const std::vector<int64_t>& prompt,
                                                                 std::vector<std::string> stops) {
  return [text = IncrementalDetokenizer(tokenizer, prompt, std::move(stops))](
             const generate::Output& output) mutable {
    text.new_text(output, false);
    return text.stopped();
  };
}

}  // namespace sluice::serve
