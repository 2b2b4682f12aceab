// Turns labels of words into labels of the words' tokens, aligned as in transformers' examples of token
// classification.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice::corpus {

class Tokenizer;

// The tokens of a word that get its label.
enum class LabelledPieces : uint8_t { kFirst, kAll };

// Returns the ids of each word of each text, encoded as transformers encodes pre-split words: each word
// alone, with the tokenizer's prefix of words. If the tokenizer adds no prefix, a blank precedes every word
// but the first of a text. A word may have no id. REQUIRES: words are UTF-8.
std::vector<std::vector<std::vector<int32_t>>> encode_words(const Tokenizer& tokenizer,
                                                            std::span<const std::vector<std::string>> texts);

struct LabelledTokens {
  std::vector<int32_t> ids;  // all words' ids, between the begin and end tokens of documents
  std::string labels;        // JSON text: for each id a label, or null; empty where no word has an id
};

// `labels_of_words`: a JSON list with one label per word; -100 and null mean no label. A word's label goes to
// its first id, or to all its ids. No other id has a label, in particular no begin or end token.
LabelledTokens labelled_tokens(const std::vector<std::vector<int32_t>>& ids_of_words,
                               const std::string& labels_of_words, LabelledPieces pieces,
                               const Tokenizer& tokenizer);

}  // namespace sluice::corpus
