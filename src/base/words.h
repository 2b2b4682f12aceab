// Maps enumerators to the words that people write for them.
#pragma once

#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace sluice::base {

// In a table an enumerator's first word is the one that is written; further ones are read, too.
template <typename E>
struct Word {
  const char* text;
  E value;
};

template <typename Words>
std::vector<std::string> texts_of(const Words& words) {
  std::vector<std::string> texts;
  for (const auto& word : words) texts.emplace_back(word.text);
  return texts;
}

// Nothing if `text` is none of the words.
template <typename Words>
auto find_word(const Words& words, std::string_view text) {
  std::optional<decltype(std::begin(words)->value)> found;
  for (const auto& word : words) {
    if (text == word.text) found = word.value;
  }
  return found;
}

// The value that `word` names. InputError with `advice` if it names none.
template <typename Words>
auto parse_word(const Words& words, const char* key, const std::string& word, const char* advice) {
  const auto found = find_word(words, word);
  if (!found) throw InputError(text(key, " is '", word, "': ", advice));
  return *found;
}

// REQUIRES: the table has the value.
template <typename Words, typename E>
const char* word_of(const Words& words, E value) {
  const char* found = nullptr;
  for (const auto& word : words) {
    if (word.value == value && found == nullptr) found = word.text;
  }
  return found;
}

}  // namespace sluice::base
