// Whether two tokenizers mean the same by their ids.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::corpus {

// The text that a tokenizer's file, of these bytes, has for each id; empty where it has none. `name` ends in
// .json for a Hugging Face tokenizer.json, else it is a SentencePiece model's. InputError naming it when it
// is neither.
std::vector<std::string> token_texts(std::string_view bytes, const std::string& name);

// A file of a tokenizer.
struct TokenizerBytes {
  std::string name;
  std::string bytes;
};

// "id 17 is 'a' in ONE and 'b' in OTHER", of the first id for which both have a text and not the same; empty
// where there is none: a tokenizer with more tokens than another is no other one. InputError as token_texts.
std::string difference(const TokenizerBytes& one, const TokenizerBytes& other);

}  // namespace sluice::corpus
