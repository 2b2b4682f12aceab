#include "corpus/turn_ends.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/json.h"

namespace sluice::corpus {
namespace {

using base::Json;

// The pieces of a tokenizer: special tokens and blanks.
class Pieces {
 public:
  Pieces(const Json& tokenizer, const std::string& name) {
    for (const Json& token : base::get_or<Json>(tokenizer, "added_tokens", Json::array(), name)) {
      const auto id = base::require<int64_t>(token, "id", name);
      const auto content = base::require<std::string>(token, "content", name);
      if (base::get_or<bool>(token, "special", false, name) && !is_blank(content)) special_[id] = content;
      if (is_blank(content)) blank_[id] = true;
    }
    const Json model = base::get_or<Json>(tokenizer, "model", Json::object(), name);
    const Json vocabulary = base::get_or<Json>(model, "vocab", Json::object(), name);
    int64_t place = 0;
    for (const auto& [key, value] : vocabulary.items()) {
      // Vocabularies list pieces by id, or in order with a score each.
      const bool by_id = value.is_number_integer();
      const std::string piece = by_id ? key
                                : value.is_array() && !value.empty() && value[0].is_string()
                                    ? value[0].get<std::string>()
                                    : "";
      if (!piece.empty() && is_blank(piece)) blank_[by_id ? value.get<int64_t>() : place] = true;
      ++place;
    }
  }

  const std::string* special(int64_t id) const {
    const auto found = special_.find(id);
    return found == special_.end() ? nullptr : &found->second;
  }
  bool blank(int64_t id) const { return blank_.contains(id); }

 private:
  // Whether a piece is blank, in plain, byte-level or SentencePiece notation.
  static bool is_blank(std::string_view piece) {
    constexpr std::string_view kBlanks[] = {" ",      "\n",     "\t",     "\r",     "\u0120",
                                            "\u010A", "\u0109", "\u010D", "\u2581", "<0x0A>",
                                            "<0x20>", "<0x09>", "<0x0D>"};
    while (!piece.empty()) {
      const auto* const found =
          std::ranges::find_if(kBlanks, [&](std::string_view blank) { return piece.starts_with(blank); });
      if (found == std::end(kBlanks)) return false;
      piece.remove_prefix(found->size());
    }
    return true;
  }

  std::map<int64_t, std::string> special_;
  std::map<int64_t, bool> blank_;
};

// Calls `found` for each run of learnt tokens in a document that ends with a special token.
template <typename Found>
void for_each_end(const std::vector<int32_t>& tokens, const std::vector<uint8_t>& mask, const Pieces& pieces,
                  Found found) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool ends_run = mask[i] != 0 && (i + 1 == tokens.size() || mask[i + 1] == 0);
    if (!ends_run) continue;
    size_t last = i;
    while (last > 0 && mask[last - 1] != 0 && pieces.blank(tokens[last])) --last;
    if (const std::string* text = pieces.special(tokens[last])) found(tokens[last], *text);
  }
}

}  // namespace

std::vector<TurnEnd> turn_ends(const IndexedCorpus& corpus, const std::string& tokenizer_json,
                               const std::string& name) {
  constexpr int64_t kMostDocuments = 512, kRare = 20;
  if (!corpus.has_mask() || corpus.documents() == 0) return {};
  const Pieces pieces(base::parse_json(tokenizer_json, name), name);
  const int64_t looked_at = std::min(kMostDocuments, corpus.documents());
  std::vector<TokenRange> ranges;
  for (int64_t i = 0; i < looked_at; ++i) {
    const int64_t document = i * corpus.documents() / looked_at;
    ranges.push_back({document, 0, corpus.length(document)});
  }
  corpus.fetch_ahead(ranges);
  std::map<int64_t, std::pair<std::string, int64_t>> counts;  // by id: the text, and the number of documents
  for (const auto& [document, begin, length] : ranges) {
    const std::vector<int32_t> tokens = corpus.read(document);
    std::vector<uint8_t> mask(tokens.size());
    corpus.read_mask(document, begin, length, mask.data());
    std::map<int64_t, std::string> ends;
    for_each_end(tokens, mask, pieces, [&](int64_t id, const std::string& text) { ends[id] = text; });
    for (const auto& [id, text] : ends) {
      counts[id].first = text;
      ++counts[id].second;
    }
  }
  std::vector<TurnEnd> ends;
  for (const auto& [id, count] : counts) {
    if (count.second * kRare >= looked_at) ends.push_back({id, count.first});
  }
  return ends;
}

}  // namespace sluice::corpus
