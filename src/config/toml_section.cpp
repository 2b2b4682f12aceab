#include "config/toml_section.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"

namespace sluice::config {

using base::InputError;
using base::text;

namespace {

std::string excerpt(const toml::node& value) { return base::beginning(shown(&value)); }

// A hint for a text in place of a number: " without quotes", or the number meant by 10% or 0,1.
std::string number_hint(const toml::node& value) {
  const auto given = value.value_exact<std::string>();
  if (!given) return "";
  std::string digits(base::trim(*given));
  if (base::parse_number(digits)) return text(": write ", digits, " without quotes");
  const bool percent = digits.ends_with('%');
  if (percent) digits.pop_back();
  std::ranges::replace(digits, ',', '.');
  const auto number = base::parse_number(base::trim(digits));
  return number ? text(": write ", percent ? *number / 100 : *number) : "";
}

}  // namespace

std::string place_of(const std::string& file, const toml::node& value) {
  const auto line = value.source().begin.line;
  return line == 0 ? "--set" : text(file, ":", line);
}

std::string shown(const toml::node* value) {
  if (value == nullptr) return "not set";
  if (const toml::table* table = value->as_table()) {
    std::vector<std::string> parts;
    for (const auto& [key, part] : *table) parts.push_back(base::text(key.str(), " = ", shown(&part)));
    return base::text("{", base::join(parts, ", "), "}");
  }
  if (const toml::array* list = value->as_array()) {
    std::vector<std::string> parts;
    for (const toml::node& part : *list) parts.push_back(shown(&part));
    return base::text("[", base::join(parts, ", "), "]");
  }
  // toml++ negates negative numbers to print them, which fails for the least integer.
  if (value->is_integer()) return text(value->as_integer()->get());
  if (value->is_floating_point()) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, value->as_floating_point()->get(),
                                   std::chars_format::general)
                         .ptr;
    return {digits, end};
  }
  return base::toml_text(*value);
}

void TomlSection::read(const std::string& key, std::string& value) {
  const toml::node* found = node(key);
  if (found == nullptr) return;
  const auto given = found->value_exact<std::string>();
  if (!given) refuse(key, text("a text, such as \"", value, "\""));
  value = *given;
}

void TomlSection::read(const std::string& key, bool& value) {
  const toml::node* found = node(key);
  if (found == nullptr) return;
  const auto given = found->value_exact<bool>();
  if (!given) refuse(key, "true or false");
  value = *given;
}

void TomlSection::read_in(const std::string& key, int64_t& value, const base::Range<int64_t>& range,
                          const std::string& otherwise) {
  const toml::node* found = node(key);
  if (found == nullptr) return;
  auto given = found->value_exact<int64_t>();
  // A float such as 1e3 is accepted as a whole number if it is one.
  constexpr double kExact = 1LL << 53;
  if (const auto real = found->value_exact<double>();
      real && std::abs(*real) <= kExact && *real == std::trunc(*real))
    given = static_cast<int64_t>(*real);
  if (!given || !range.holds(*given)) refuse(key, otherwise + base::expectation(range) + number_hint(*found));
  value = *given;
}

void TomlSection::read_in(const std::string& key, int& value, const base::Range<int>& range,
                          const std::string& otherwise) {
  int64_t wide = value;
  read_in(key, wide, {range.least, range.most}, otherwise);
  value = static_cast<int>(wide);
}

void TomlSection::read_in(const std::string& key, double& value, const base::Range<double>& range,
                          const std::string& otherwise) {
  const toml::node* found = node(key);
  if (found == nullptr) return;
  const auto given = found->value<double>();  // converts whole numbers, too
  if (!found->is_number() || !given || !range.holds(*given))
    refuse(key, otherwise + base::expectation(range) + number_hint(*found));
  value = *given;
}

void TomlSection::read_choice(const std::string& key, std::string& value,
                              const std::vector<std::string>& choices) {
  const toml::node* found = node(key);
  if (found == nullptr) return;
  const auto given = found->value_exact<std::string>();
  if (!given || std::ranges::count(choices, *given) == 0) {
    refuse(key, text("one of ", base::join(choices, ", ")));
  }
  value = *given;
}

std::vector<std::string> TomlSection::read_texts(const std::string& key) {
  const toml::node* found = node(key);
  std::vector<std::string> texts;
  if (found == nullptr) return texts;
  if (const auto single = found->value_exact<std::string>()) return {*single};
  const toml::array* array = found->as_array();
  if (array == nullptr) refuse(key, "a text or a list of texts");
  for (const toml::node& item : *array) {
    const auto value = item.value_exact<std::string>();
    if (!value) refuse(key, "a list of nothing but texts");
    texts.push_back(*value);
  }
  return texts;
}

bool TomlSection::is(const std::string& key, const std::string& word) {
  const toml::node* found = node(key);
  return found != nullptr && found->value_exact<std::string>() == word;
}

const toml::node* TomlSection::node(const std::string& key) {
  if (std::ranges::find(known_, key) == known_.end()) known_.push_back(key);
  return has(key) ? table_->get(key) : nullptr;
}

void TomlSection::refuse(const std::string& key, const std::string& expected) const {
  const toml::node& value = *table_->get(key);
  throw InputError(text("[config] ", place_of(file_, value), ": ", name_, ".", key, " is ", excerpt(value),
                        ": give ", expected));
}

void TomlSection::wrong(const std::string& key, const std::string& fault) const {
  throw InputError(text("[config] ", file_, ": ", name_, ".", key, " ", fault));
}

void TomlSection::finish(const std::function<std::string(const std::string& key)>& elsewhere) const {
  if (table_ == nullptr) return;
  for (const auto& [key, value] : *table_) {
    const std::string found(key.str());
    if (std::ranges::find(known_, found) != known_.end()) continue;
    std::string nearest = elsewhere ? elsewhere(found) : "";
    if (nearest.empty()) nearest = base::nearest_word(found, known_);
    const std::string hint = nearest.empty() ? text("known keys: ", base::join(known_, ", "))
                                             : text("did you mean '", nearest, "'?");
    throw InputError(text("[config] ", place_of(file_, value), ": unknown key '", name_, ".",
                          base::beginning(found), "': ", hint));
  }
}

}  // namespace sluice::config
