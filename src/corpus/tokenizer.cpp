#include "corpus/tokenizer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::corpus {

std::vector<EncodedText> Tokenizer::encode_checked(std::span<const std::string> texts) const {
  std::vector<std::vector<int32_t>> ids = encode_all(texts);
  const std::vector<std::string> decoded = decode_all(ids);
  std::vector<EncodedText> encoded(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) encoded[i] = {std::move(ids[i]), decoded[i] != texts[i]};
  return encoded;
}

std::vector<EncodedChat> Tokenizer::encode_chats(std::span<const std::string>) const {
  SLUICE_ASSERT(false, "a tokenizer without chat templates");
}

std::vector<EncodedChat> Tokenizer::encode_prompts(std::span<const std::string>) const {
  SLUICE_ASSERT(false, "a tokenizer without chat templates");
}

void Tokenizer::require_end(const TokenizerOptions& options, const std::string& name) const {
  const bool may_lack = options.end_token == kNoToken || options.end_token == kAddedToken;
  if (!options.needs_end || end_id_ >= 0 || may_lack) return;
  throw base::InputError(base::text(name,
                                    ": no known token to end documents with: name one of its tokens, or '",
                                    kNoToken, "', with --end-token"));
}

std::vector<int32_t> with_ends(const Tokenizer& tokenizer, std::vector<int32_t> ids, int64_t most) {
  if (tokenizer.begin_id() >= 0) ids.insert(ids.begin(), tokenizer.begin_id());
  const bool ends = tokenizer.end_id() >= 0;
  const int64_t room = std::max<int64_t>(most - (ends ? 1 : 0), 0);
  if (std::ssize(ids) > room) ids.resize(static_cast<size_t>(room));
  if (ends) ids.push_back(tokenizer.end_id());
  return ids;
}

std::vector<base::Interval> rows_without_token(const Tokenizer& tokenizer, int64_t rows,
                                               std::span<const int64_t> others) {
  std::vector<base::Interval> gaps = tokenizer.gaps();
  gaps.push_back({tokenizer.vocabulary(), rows});
  const std::set<int64_t> known(others.begin(), others.end());
  std::vector<base::Interval> none;
  for (const base::Interval& gap : gaps) {
    int64_t begin = gap.begin;
    const int64_t end = std::min(gap.end, rows);
    for (auto next = known.lower_bound(begin); next != known.end() && *next < end; ++next) {
      if (begin < *next) none.push_back({begin, *next});
      begin = *next + 1;
    }
    if (begin < end) none.push_back({begin, end});
  }
  return none;
}

}  // namespace sluice::corpus
