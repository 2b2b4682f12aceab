// One section of a TOML file while it is read. Include only in .cpp files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/range.h"
#include "base/toml.h"

namespace sluice::config {

// Records every key that is read, so that unknown keys are found. A key that is absent leaves the value
// unchanged. Every fault is an InputError naming file, line, key, value and the allowed values.
class TomlSection {
 public:
  // Section root[name]; if it is missing, all keys are absent. `root` must outlive the section.
  TomlSection(const toml::table& root, std::string name, std::string file)
      : TomlSection(root[name].as_table(), name, std::move(file)) {}
  // For one table of an array, or null for an empty section.
  TomlSection(const toml::table* table, std::string name, std::string file)
      : table_(table), name_(std::move(name)), file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  bool has(const std::string& key) const { return table_ != nullptr && table_->contains(key); }

  // Whether the key has the text `word` as its value.
  bool is(const std::string& key, const std::string& word);

  // `otherwise` names further allowed values for messages ("auto or ").
  void read(const std::string& key, std::string& value);
  void read(const std::string& key, bool& value);
  void read_in(const std::string& key, int64_t& value, const base::Range<int64_t>& range,
               const std::string& otherwise = "");
  void read_in(const std::string& key, int& value, const base::Range<int>& range,
               const std::string& otherwise = "");
  void read_in(const std::string& key, double& value, const base::Range<double>& range,
               const std::string& otherwise = "");
  void read_choice(const std::string& key, std::string& value, const std::vector<std::string>& choices);
  // A text or a list of texts; empty if absent.
  std::vector<std::string> read_texts(const std::string& key);
  // The node, for other kinds of values; null if absent.
  const toml::node* node(const std::string& key);

  // "[config] FILE:LINE: SECTION.KEY is VALUE: give EXPECTED"
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;
  // "[config] FILE: SECTION.KEY FAULT"
  [[noreturn]] void wrong(const std::string& key, const std::string& fault) const;

  // Refuses keys that were never read. `elsewhere` may return the key's name in another section, or "", for
  // the message.
  void finish(const std::function<std::string(const std::string& key)>& elsewhere = {}) const;

 private:
  const toml::table* table_;
  std::string name_;
  std::string file_;
  std::vector<std::string> known_;
};

// A value as TOML, numbers in the shortest form that reads back to itself; "not set" for null.
std::string shown(const toml::node* value);

// "FILE:LINE", or "--set" for a value from an override.
std::string place_of(const std::string& file, const toml::node& value);

}  // namespace sluice::config
