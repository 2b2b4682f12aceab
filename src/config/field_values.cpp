#include "config/field_values.h"

namespace sluice::config {

using base::text;

namespace {

constexpr base::Range<double> kWeights{1e-9, 1e9};

toml::array array_of(const std::vector<std::string>& texts) {
  toml::array array;
  for (const std::string& item : texts) array.push_back(item);
  return array;
}

}  // namespace

void Path::read(TomlSection& section, const std::string& key) {
  std::string given = value_.string();
  section.read(key, given);
  value_ = given;
}

void Texts::read(TomlSection& section, const std::string& key) {
  value_ = section.read_texts(key);
  if (word_ != nullptr && value_ == std::vector<std::string>{word_}) value_.clear();
}

void Texts::write(toml::table& table, const std::string& key) const {
  if (word_ != nullptr && value_.empty()) {
    table.insert(key, word_);
  } else {
    table.insert(key, array_of(value_));
  }
}

namespace {

// `value_of(node)` reads an item; none: it is no such number.
template <typename T, typename ValueOf>
std::vector<T> listed(TomlSection& section, const std::string& key, const base::Range<T>& range,
                      const char* what, const ValueOf& value_of) {
  const toml::array* numbers = section.node(key)->as_array();
  const std::string expected = text("a list of ", what, ", each ", base::expectation(range));
  if (numbers == nullptr) section.refuse(key, expected);
  std::vector<T> list;
  for (const toml::node& number : *numbers) {
    const std::optional<T> given = value_of(number);
    if (!given || !range.holds(*given)) section.refuse(key, expected);
    list.push_back(*given);
  }
  return list;
}

template <typename T>
void insert_list(toml::table& table, const std::string& key, const std::vector<T>& list) {
  toml::array array;
  for (const T number : list) array.push_back(number);
  table.insert(key, std::move(array));
}

}  // namespace

void Integers::read(TomlSection& section, const std::string& key) {
  value_ = listed(section, key, range_, what_,
                  [](const toml::node& number) { return number.value_exact<int64_t>(); });
}

void Integers::write(toml::table& table, const std::string& key) const { insert_list(table, key, value_); }

void Numbers::read(TomlSection& section, const std::string& key) {
  value_ =
      listed(section, key, range_, what_, [](const toml::node& number) { return number.value<double>(); });
}

void Numbers::write(toml::table& table, const std::string& key) const { insert_list(table, key, value_); }

void Betas::read(TomlSection& section, const std::string& key) {
  const toml::array* betas = section.node(key)->as_array();
  if (betas == nullptr || betas->size() != 2) section.refuse(key, "a list of two numbers");
  for (size_t i = 0; i < 2; ++i) {
    const auto beta = (*betas)[i].value<double>();
    if (!beta || !(*beta >= 0 && *beta < 1)) section.refuse(key, "two numbers from 0 to below 1");
    value_[i] = *beta;
  }
}

void Betas::write(toml::table& table, const std::string& key) const {
  table.insert(key, toml::array{value_[0], value_[1]});
}

void Corpora::read(TomlSection& section, const std::string& key) {
  constexpr const char* kExpected = "a corpus, a list of them, or of [corpus, weight] pairs";
  value_.clear();
  if (const auto only = section.node(key)->value_exact<std::string>()) return value_.assign(1, {*only, 1.0});
  const toml::array* pairs = section.node(key)->as_array();
  if (pairs == nullptr) section.refuse(key, kExpected);
  for (const toml::node& item : *pairs) {
    if (const auto corpus = item.value_exact<std::string>()) {
      value_.emplace_back(*corpus, 1.0);
      continue;
    }
    const toml::array* pair = item.as_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_number()) {
      section.refuse(key, kExpected);
    }
    const double weight = *(*pair)[1].value<double>();
    if (!kWeights.holds(weight)) section.refuse(key, text("as weights ", base::expectation(kWeights)));
    value_.emplace_back(*(*pair)[0].value_exact<std::string>(), weight);
  }
}

void Corpora::write(toml::table& table, const std::string& key) const {
  toml::array array;
  for (const auto& [prefix, weight] : value_) array.push_back(toml::array{prefix, weight});
  table.insert(key, std::move(array));
}

void ValidationSets::read(TomlSection& section, const std::string& key) {
  value_.clear();
  const toml::table* named = section.node(key)->as_table();
  if (named == nullptr) {
    std::vector<std::string> prefixes = section.read_texts(key);
    if (!prefixes.empty()) value_.push_back({"", std::move(prefixes)});
    return;
  }
  TomlSection inner(named, "data.validation", section.file());
  for (const auto& [word, unused] : *named) {
    const std::string name(word.str());
    value_.push_back({name, inner.read_texts(name)});
    if (name.empty() || value_.back().prefixes.empty()) section.refuse(key, "corpora for each name");
  }
}

void ValidationSets::write(toml::table& table, const std::string& key) const {
  if (value_.empty() || value_.front().name.empty()) {
    table.insert(key, value_.empty() ? toml::array{} : array_of(value_.front().prefixes));
    return;
  }
  toml::table sets;
  for (const ValidationSet& set : value_) sets.insert(set.name, array_of(set.prefixes));
  sets.is_inline(true);
  table.insert(key, std::move(sets));
}

void NamedShare::read(TomlSection& section, const std::string& key) {
  value_.reset();
  if (section.is(key, "auto")) return;
  for (const auto& [word, share] : words_) {
    if (!section.is(key, word)) continue;
    value_ = share;
    return;
  }
  double given = 0;
  section.read_in(key, given, kShares, base::text("auto, ", words_[0].first, ", ", words_[1].first, " or "));
  value_ = given;
}

void NamedShare::write(toml::table& table, const std::string& key) const {
  if (!value_) {
    table.insert(key, "auto");
    return;
  }
  const auto word = std::ranges::find_if(words_, [&](const auto& known) { return known.second == *value_; });
  if (word == words_.end()) {
    table.insert(key, *value_);
  } else {
    table.insert(key, word->first);
  }
}

std::string NamedShare::expectation() const {
  return base::text("auto | ", words_[0].first, " | ", words_[1].first, " | ", base::bounds(kShares));
}

void SelectValue::read(TomlSection& section, const std::string& key) {
  constexpr base::Range<int64_t> kCandidates{0, (int64_t{1} << 31) - 1};
  const toml::node& node = *section.node(key);
  const auto word = node.value_exact<std::string>();
  const auto index = word ? base::parse_integer(*word) : node.value_exact<int64_t>();
  if (word == "best") {
    value_ = {};
  } else if (word == "cycle") {
    value_ = {.rule = strategy::Selection::kCycle};
  } else if (index && kCandidates.holds(*index)) {
    value_ = {.rule = strategy::Selection::kFixed, .candidate = static_cast<int>(*index)};
  } else {
    section.refuse(key, "best, cycle or an index from 0");
  }
}

void SelectValue::write(toml::table& table, const std::string& key) const {
  switch (value_.rule) {
    case strategy::Selection::kBest: table.insert(key, "best"); break;
    case strategy::Selection::kCycle: table.insert(key, "cycle"); break;
    case strategy::Selection::kFixed: table.insert(key, value_.candidate); break;
  }
}

}  // namespace sluice::config
