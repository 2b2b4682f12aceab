// Labels of words as labels of the tokens that the words become, as transformers' examples of token
// classification align them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice::corpus {

class Tokenizer;

// Which of a word's tokens have its label.
enum class LabelledPieces : uint8_t { kFirst, kAll };

// By text the ids of each of its words, as transformers encodes what is split into words: each word alone,
// with what the tokenizer puts in front of a word. Where it puts nothing there, a blank stands in front of
// all words of a text but the first. A word may have no id. REQUIRES: words are UTF-8.
std::vector<std::vector<std::vector<int32_t>>> encode_words(const Tokenizer& tokenizer,
                                                            std::span<const std::vector<std::string>> texts);

struct LabelledTokens {
  std::vector<int32_t> ids;  // of all words, between the tokens that stand around documents
  std::string labels;        // JSON text: for each id a label, or null; empty where no word has an id
};

// `labels_of_words`: a JSON list with a label for each word, -100 and null where there is none. A word's
// label is that of its first id, or of all; no other id has one, nor do those that stand around a document.
LabelledTokens labelled_tokens(const std::vector<std::vector<int32_t>>& ids_of_words,
                               const std::string& labels_of_words, LabelledPieces pieces,
                               const Tokenizer& tokenizer);

}  // namespace sluice::corpus
