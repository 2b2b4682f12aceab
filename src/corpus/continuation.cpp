#include "corpus/continuation.h"

#include <algorithm>
#include <string_view>

namespace sluice::corpus {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // decoded from incomplete characters
constexpr int64_t kLetterTokens = 4;                       // at most, per character

using Ids = std::vector<int32_t>;

bool breaks_off(std::string_view text) { return text.ends_with(kReplacement); }

// Drops leading bytes within a character: decoders that join bytes lose a whole run that begins with them.
std::span<const int32_t> from_a_letter_on(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  while (!ids.empty() && tokenizer.is_later_byte(ids.front())) ids = ids.subspan(1);
  return ids;
}

bool begins_letter_at(std::string_view text, size_t at) {
  return at == text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
}

// The part of `whole` behind its beginning `shown`. Decoders may write the beginning of a longer text
// slightly differently.
std::string rest_of(const std::string& whole, const std::string& shown) {
  const auto [end, ignored] = std::ranges::mismatch(whole, shown);
  auto same = static_cast<size_t>(end - whole.begin());
  while (same > 0 && !begins_letter_at(whole, same)) --same;
  return whole.substr(same);
}

}  // namespace

std::vector<std::string> texts_behind(const Tokenizer& tokenizer,
                                      std::span<const Continuation> continuations) {
  // Two inputs per continuation: the tokens before it together with its own, then the tokens before alone.
  std::vector<Ids> asked;
  for (const Continuation& each : continuations) {
    const std::span<const int32_t> before = from_a_letter_on(tokenizer, each.before);
    Ids& whole = asked.emplace_back(before.begin(), before.end());
    whole.insert(whole.end(), each.tokens.begin(), each.tokens.end());
    asked.emplace_back(before.begin(), before.end());
  }
  std::vector<std::string> decoded = tokenizer.decode_all(asked);
  // If the tokens before end within a character, decode them again without the last 1, 2 or 3 of them.
  std::vector<Ids> shorter;
  for (size_t i = 1; i < decoded.size(); i += 2) {
    if (!breaks_off(decoded[i])) continue;
    for (int64_t less = 1; less < kLetterTokens; ++less) {
      const Ids& before = asked[i];
      const int64_t kept = std::max<int64_t>(0, std::ssize(before) - less);
      shorter.emplace_back(before.begin(), before.begin() + kept);
    }
  }
  const std::vector<std::string> complete =
      shorter.empty() ? std::vector<std::string>() : tokenizer.decode_all(shorter);
  auto next = complete.begin();
  std::vector<std::string> texts;
  for (size_t i = 1; i < decoded.size(); i += 2) {
    std::string& shown = decoded[i];
    if (breaks_off(shown)) {
      const auto end = next + (kLetterTokens - 1);
      const auto found = std::find_if_not(next, end, breaks_off);
      if (found != end) shown = *found;
      next = end;
    }
    texts.push_back(rest_of(decoded[i - 1], shown));
  }
  return texts;
}

std::string text_behind(const Tokenizer& tokenizer, const Continuation& continuation) {
  return texts_behind(tokenizer, {&continuation, 1}).front();
}

namespace {

// Windows on the tokens of a text, each ending at a given token.
class Windows {
 public:
  Windows(const Tokenizer& tokenizer, Ids ids) : tokenizer_(tokenizer), ids_(std::move(ids)) {}

  int64_t size() const { return std::ssize(ids_); }
  // The shortest useful run of tokens before `end` that decodes as it does behind all tokens in front.
  Ids window(int64_t last, int64_t end) const {
    constexpr int64_t kTokens = 2 * kLetterTokens;
    int64_t begin = std::max<int64_t>(0, last + 1 - kTokens);
    const int64_t latest = begin == 0 ? 0 : begin + kLetterTokens - 1;
    while (begin < latest && tokenizer_.is_later_byte(ids_[static_cast<size_t>(begin)])) ++begin;
    return {ids_.begin() + begin, ids_.begin() + end};
  }

 private:
  const Tokenizer& tokenizer_;
  Ids ids_;
};

}  // namespace

std::vector<std::string> pieces_behind(const Tokenizer& tokenizer, const Continuation& continuation) {
  Ids ids = continuation.before;
  ids.insert(ids.end(), continuation.tokens.begin(), continuation.tokens.end());
  const Windows windows(tokenizer, std::move(ids));
  const int64_t given = std::ssize(continuation.before);
  // Find the tokens that complete a character, beginning a few tokens in front of the continuation.
  const int64_t first = std::max<int64_t>(0, given - kLetterTokens);
  std::vector<Ids> asked;
  for (int64_t i = first; i < windows.size(); ++i) asked.push_back(windows.window(i, i + 1));
  const std::vector<std::string> up_to = tokenizer.decode_all(asked);
  asked.clear();
  std::vector<int64_t> ends;  // tokens that complete the text before them
  int64_t told = first;       // all tokens in front of it are complete
  for (int64_t i = first; i < windows.size(); ++i) {
    const bool last = i + 1 == windows.size() || i + 1 - told >= kLetterTokens;
    if (!last && breaks_off(up_to[static_cast<size_t>(i - first)])) continue;
    if (i >= given) {
      ends.push_back(i);
      asked.push_back(windows.window(i, told));
    }
    told = i + 1;
  }
  const std::vector<std::string> before = tokenizer.decode_all(asked);
  std::vector<std::string> pieces(continuation.tokens.size());
  for (size_t e = 0; e < ends.size(); ++e)
    pieces[static_cast<size_t>(ends[e] - given)] =
        rest_of(up_to[static_cast<size_t>(ends[e] - first)], before[e]);
  return pieces;
}

}  // namespace sluice::corpus
