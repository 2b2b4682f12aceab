// The kinds of values that configuration keys have. Each class borrows the member that holds the value.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/range.h"
#include "base/text.h"
#include "config/field.h"
#include "config/run_config.h"
#include "config/words.h"

namespace sluice::config {

class Text final : public FieldValue {
 public:
  explicit Text(std::string& value) : value_(value) {}
  void read(TomlSection& section, const std::string& key) override { section.read(key, value_); }
  void write(toml::table& table, const std::string& key) const override { table.insert(key, value_); }

 private:
  std::string& value_;
};

class Path final : public FieldValue {
 public:
  explicit Path(std::filesystem::path& value) : value_(value) {}
  void read(TomlSection& section, const std::string& key) override;
  void write(toml::table& table, const std::string& key) const override {
    table.insert(key, value_.string());
  }

 private:
  std::filesystem::path& value_;
};

class Flag final : public FieldValue {
 public:
  explicit Flag(bool& value) : value_(value) {}
  void read(TomlSection& section, const std::string& key) override { section.read(key, value_); }
  void write(toml::table& table, const std::string& key) const override { table.insert(key, value_); }
  std::string expectation() const override { return "true | false"; }

 private:
  bool& value_;
};

// A flag, or a word that stands for none.
class OptionalFlag final : public FieldValue {
 public:
  OptionalFlag(std::optional<bool>& value, const char* word) : value_(value), word_(word) {}
  void read(TomlSection& section, const std::string& key) override {
    value_.reset();
    if (section.is(key, word_)) return;
    bool given{};
    section.read(key, given);
    value_ = given;
  }
  void write(toml::table& table, const std::string& key) const override {
    if (value_) {
      table.insert(key, *value_);
    } else {
      table.insert(key, word_);
    }
  }
  std::string expectation() const override { return base::text(word_, " | true | false"); }

 private:
  std::optional<bool>& value_;
  const char* word_;
};

template <typename T>
class Number final : public FieldValue {
 public:
  Number(T& value, const base::Range<T>& range) : value_(value), range_(range) {}
  void read(TomlSection& section, const std::string& key) override { section.read_in(key, value_, range_); }
  void write(toml::table& table, const std::string& key) const override { table.insert(key, value_); }
  std::string expectation() const override { return base::bounds(range_); }

 private:
  T& value_;
  base::Range<T> range_;
};

// A number, or a word that stands for none.
template <typename T>
class OptionalNumber final : public FieldValue {
 public:
  // The word, such as "auto"; null: none is not written.
  OptionalNumber(std::optional<T>& value, const base::Range<T>& range, const char* word = nullptr)
      : value_(value), range_(range), word_(word) {}
  void read(TomlSection& section, const std::string& key) override {
    value_.reset();
    if (word_ != nullptr && section.is(key, word_)) return;
    T given{};
    section.read_in(key, given, range_, word_ == nullptr ? "" : base::text(word_, " or "));
    value_ = given;
  }
  void write(toml::table& table, const std::string& key) const override {
    if (value_) {
      table.insert(key, *value_);
    } else if (word_ != nullptr) {
      table.insert(key, word_);
    }
  }
  std::string expectation() const override {
    return base::text(word_ == nullptr ? "" : base::text(word_, " | "), base::bounds(range_));
  }

 private:
  std::optional<T>& value_;
  base::Range<T> range_;
  const char* word_;
};

// A share from 0 to 1, "auto" for none, or one of two words for 0 and 1.
class NamedShare final : public FieldValue {
 public:
  NamedShare(std::optional<double>& value, const char* nothing, const char* all)
      : value_(value), words_{std::pair{nothing, 0.0}, std::pair{all, 1.0}} {}
  void read(TomlSection& section, const std::string& key) override;
  void write(toml::table& table, const std::string& key) const override;
  std::string expectation() const override;

 private:
  static constexpr base::Range<double> kShares{0.0, 1.0};
  std::optional<double>& value_;
  std::array<std::pair<const char*, double>, 2> words_;
};

// One of several words.
template <typename E>
class Choice final : public FieldValue {
 public:
  Choice(E& value, std::span<const Word<E>> words) : value_(value), words_(words) {}
  void read(TomlSection& section, const std::string& key) override {
    std::string given;
    section.read_choice(key, given, base::texts_of(words_));
    value_ = *base::find_word(words_, given);
  }
  void write(toml::table& table, const std::string& key) const override {
    if (const char* word = base::word_of(words_, value_)) table.insert(key, word);
  }
  std::string expectation() const override { return base::join(base::texts_of(words_), " | "); }

 private:
  E& value_;
  std::span<const Word<E>> words_;
};
template <typename E, size_t kCount>
Choice(E&, const Word<E> (&)[kCount]) -> Choice<E>;

// Two words, one for transfers inside nodes and one for those between them, or one word for both.
template <typename E>
class InAndBetween final : public FieldValue {
 public:
  InAndBetween(std::array<E, 2>& value, std::span<const Word<E>> words) : value_(value), words_(words) {}
  void read(TomlSection& section, const std::string& key) override {
    const std::vector<std::string> given = section.read_texts(key);
    const auto known = [&](const std::string& word) { return base::find_word(words_, word).has_value(); };
    if (given.empty() || given.size() > 2 || !std::ranges::all_of(given, known))
      section.refuse(key, base::text(base::join(base::texts_of(words_), ", "),
                                     ", or two of them, [inside nodes, between them]"));
    value_ = {*base::find_word(words_, given.front()), *base::find_word(words_, given.back())};
  }
  void write(toml::table& table, const std::string& key) const override {
    const char* first = base::word_of(words_, value_[0]);
    if (value_[0] == value_[1]) {
      table.insert(key, first);
    } else {
      table.insert(key, toml::array{first, base::word_of(words_, value_[1])});
    }
  }
  std::string expectation() const override { return base::join(base::texts_of(words_), " | "); }

 private:
  std::array<E, 2>& value_;
  std::span<const Word<E>> words_;
};
template <typename E, size_t kCount>
InAndBetween(std::array<E, 2>&, const Word<E> (&)[kCount]) -> InAndBetween<E>;

// One text or several; `word` ("auto") stands for none.
class Texts final : public FieldValue {
 public:
  explicit Texts(std::vector<std::string>& value, const char* word = nullptr) : value_(value), word_(word) {}
  void read(TomlSection& section, const std::string& key) override;
  void write(toml::table& table, const std::string& key) const override;

 private:
  std::vector<std::string>& value_;
  const char* word_;
};

// A list of whole numbers, which `what` names for people: "steps".
class Integers final : public FieldValue {
 public:
  Integers(std::vector<int64_t>& value, const base::Range<int64_t>& range, const char* what)
      : value_(value), range_(range), what_(what) {}
  void read(TomlSection& section, const std::string& key) override;
  void write(toml::table& table, const std::string& key) const override;

 private:
  std::vector<int64_t>& value_;
  base::Range<int64_t> range_;
  const char* what_;
};

// A list of numbers, which `what` names for people: "weights".
class Numbers final : public FieldValue {
 public:
  Numbers(std::vector<double>& value, const base::Range<double>& range, const char* what)
      : value_(value), range_(range), what_(what) {}
  void read(TomlSection& section, const std::string& key) override;
  void write(toml::table& table, const std::string& key) const override;

 private:
  std::vector<double>& value_;
  base::Range<double> range_;
  const char* what_;
};

// Two numbers from 0 to below 1.
class Betas final : public FieldValue {
 public:
  explicit Betas(std::array<double, 2>& value) : value_(value) {}
  void read(TomlSection& section, const std::string& key) override;
  void write(toml::table& table, const std::string& key) const override;

 private:
  std::array<double, 2>& value_;
};

// [prefix, weight] pairs.
class Corpora final : public FieldValue {
 public:
  explicit Corpora(std::vector<std::pair<std::string, double>>& value) : value_(value) {}
  void read(TomlSection& section, const std::string& key) override;
  void write(toml::table& table, const std::string& key) const override;

 private:
  std::vector<std::pair<std::string, double>>& value_;
};

// A text or a list of texts, which is one set, or a table of sets by name.
class ValidationSets final : public FieldValue {
 public:
  explicit ValidationSets(std::vector<ValidationSet>& value) : value_(value) {}
  void read(TomlSection& section, const std::string& key) override;
  void write(toml::table& table, const std::string& key) const override;

 private:
  std::vector<ValidationSet>& value_;
};

class SelectValue final : public FieldValue {
 public:
  explicit SelectValue(Select& value) : value_(value) {}
  void read(TomlSection& section, const std::string& key) override;
  void write(toml::table& table, const std::string& key) const override;
  std::string expectation() const override { return "best | cycle | an index from 0"; }

 private:
  Select& value_;
};

// Written to the file only if `given`; read in any case.
template <typename Value>
class Given final : public FieldValue {
 public:
  Given(bool given, Value value) : given_(given), value_(std::move(value)) {}
  void read(TomlSection& section, const std::string& key) override { value_.read(section, key); }
  void write(toml::table& table, const std::string& key) const override {
    if (given_) value_.write(table, key);
  }
  std::string expectation() const override { return value_.expectation(); }

 private:
  bool given_;
  Value value_;
};

}  // namespace sluice::config
