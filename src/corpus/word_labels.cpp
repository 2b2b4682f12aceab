#include "corpus/word_labels.h"

#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "corpus/tokenizer.h"

namespace sluice::corpus {
namespace {

// Whether ids of separately encoded words, joined, decode to one word.
bool joins_words(const Tokenizer& tokenizer) {
  const std::string words[] = {"a", "b"};
  const std::vector<std::vector<int32_t>> ids = tokenizer.encode_all(words);
  std::vector<int32_t> joined = ids[0];
  joined.insert(joined.end(), ids[1].begin(), ids[1].end());
  return base::trim(tokenizer.decode(joined)) == "ab";
}

}  // namespace

std::vector<std::vector<std::vector<int32_t>>> encode_words(const Tokenizer& tokenizer,
                                                            std::span<const std::vector<std::string>> texts) {
  if (texts.empty()) return {};
  const bool joins = joins_words(tokenizer);
  std::vector<std::string> all;
  for (const std::vector<std::string>& words : texts) {
    for (const std::string& word : words) {
      const bool needs_blank = joins && &word != &words.front() && !word.starts_with(' ');
      if (!word.empty()) all.push_back(needs_blank ? " " + word : word);
    }
  }
  std::vector<std::vector<int32_t>> ids = tokenizer.encode_all(all);
  auto next = ids.begin();
  std::vector<std::vector<std::vector<int32_t>>> of_texts;
  for (const std::vector<std::string>& words : texts) {
    std::vector<std::vector<int32_t>>& of_words = of_texts.emplace_back();
    for (const std::string& word : words)
      of_words.push_back(word.empty() ? std::vector<int32_t>() : std::move(*next++));
  }
  return of_texts;
}

LabelledTokens labelled_tokens(const std::vector<std::vector<int32_t>>& ids_of_words,
                               const std::string& labels_of_words, LabelledPieces pieces,
                               const Tokenizer& tokenizer) {
  constexpr int kIgnored = -100;  // PyTorch's ignore_index
  const base::Json of_words = base::Json::parse(labels_of_words);
  SLUICE_ASSERT(of_words.size() == ids_of_words.size(), "not a label for each word");
  LabelledTokens tokens;
  base::Json labels = base::Json::array();
  if (tokenizer.begin_id() >= 0) labels.push_back(nullptr);
  for (size_t word = 0; word < ids_of_words.size(); ++word) {
    const std::vector<int32_t>& ids = ids_of_words[word];
    const base::Json label = of_words[word] == kIgnored ? base::Json() : of_words[word];
    for (size_t piece = 0; piece < ids.size(); ++piece)
      labels.push_back(piece == 0 || pieces == LabelledPieces::kAll ? label : base::Json());
    tokens.ids.insert(tokens.ids.end(), ids.begin(), ids.end());
  }
  if (tokens.ids.empty()) return tokens;
  if (tokenizer.end_id() >= 0) labels.push_back(nullptr);
  tokens.ids = with_ends(tokenizer, std::move(tokens.ids));
  tokens.labels = base::json_text(labels);
  return tokens;
}

}  // namespace sluice::corpus
