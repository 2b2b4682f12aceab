// Compares the tokens of two tokenizers id by id.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::corpus {

// The text of each id in a tokenizer file with the content `bytes`; empty for an id without text. If `name`
// ends in .json, the file is a Hugging Face tokenizer.json, else a SentencePiece model. InputError naming the
// file if it is neither.
std::vector<std::string> token_texts(std::string_view bytes, const std::string& name);

// The content of a tokenizer file.
struct TokenizerBytes {
  std::string name;
  std::string bytes;
};

// Describes the first id that has a text in both tokenizers but not the same: "id 17 is 'a' in ONE and 'b' in
// OTHER". Empty if there is none; extra tokens in one of them are no difference. InputError as token_texts.
std::string difference(const TokenizerBytes& one, const TokenizerBytes& other);

}  // namespace sluice::corpus
