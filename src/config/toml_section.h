// One section of a TOML file while it is read. Include only in .cpp files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/range.h"
#include "base/toml.h"

namespace sluice::config {

// Knows every key asked for, so that unknown ones are found. A key that is absent leaves the value as it is.
// Every fault is an InputError that names file, line, key, value and what may stand there.
class TomlSection {
 public:
  // root[name]; without it all keys are absent. `root` must outlive the section.
  TomlSection(const toml::table& root, std::string name, std::string file)
      : TomlSection(root[name].as_table(), name, std::move(file)) {}
  // One of several, or null for none.
  TomlSection(const toml::table* table, std::string name, std::string file)
      : table_(table), name_(std::move(name)), file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  bool has(const std::string& key) const { return table_ != nullptr && table_->contains(key); }

  // Whether the text `word` stands there.
  bool is(const std::string& key, const std::string& word);

  // `otherwise`: what else may stand there, for messages ("auto or ").
  void read(const std::string& key, std::string& value);
  void read(const std::string& key, bool& value);
  void read_in(const std::string& key, int64_t& value, const base::Range<int64_t>& range,
               const std::string& otherwise = "");
  void read_in(const std::string& key, int& value, const base::Range<int>& range,
               const std::string& otherwise = "");
  void read_in(const std::string& key, double& value, const base::Range<double>& range,
               const std::string& otherwise = "");
  void read_choice(const std::string& key, std::string& value, const std::vector<std::string>& choices);
  // A text or a list of texts; none when absent.
  std::vector<std::string> read_texts(const std::string& key);
  // For other kinds of values; null when absent.
  const toml::node* node(const std::string& key);

  // "[config] FILE:LINE: SECTION.KEY is VALUE: give EXPECTED"
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;
  // "[config] FILE: SECTION.KEY FAULT"
  [[noreturn]] void wrong(const std::string& key, const std::string& fault) const;

  // Refuses keys that nobody asked for, with what `elsewhere` answers to such a key: what it is called in
  // another section; "" where none has it.
  void finish(const std::function<std::string(const std::string& key)>& elsewhere = {}) const;

 private:
  const toml::table* table_;
  std::string name_;
  std::string file_;
  std::vector<std::string> known_;
};

// A value as TOML, numbers as short as they read back to themselves; "not set" of null.
std::string shown(const toml::node* value);

// "FILE:LINE", or "--set" for a value that stands in no file.
std::string place_of(const std::string& file, const toml::node& value);

}  // namespace sluice::config
