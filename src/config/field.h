// A key of a run configuration: its value, as TOML holds it. Include only in .cpp files.
#pragma once

#include <string>

#include "config/toml_section.h"

namespace sluice::config {

// How a value is read from TOML, written to it and told to people.
class FieldValue {
 public:
  virtual ~FieldValue() = default;
  // From what the section has under the key. InputError as TomlSection::refuse.
  virtual void read(TomlSection& section, const std::string& key) = 0;
  // Nothing where the value is none.
  virtual void write(toml::table& table, const std::string& key) const = 0;
  // "a whole number from 1 to 4096"; empty where the value written says it.
  virtual std::string expectation() const { return ""; }
};

// Who goes through a section's keys.
class Fields {
 public:
  virtual ~Fields() = default;
  // `meaning`: for people, without what the value may be.
  virtual void operator()(const char* key, FieldValue&& value, const char* meaning) = 0;
};

// Reads those that stand in a section; others stay as they are.
class FieldReader final : public Fields {
 public:
  explicit FieldReader(TomlSection& section) : section_(section) {}
  void operator()(const char* key, FieldValue&& value, const char* /*meaning*/) override {
    if (section_.node(key) != nullptr) value.read(section_, key);
  }

 private:
  TomlSection& section_;
};

// Writes all of them.
class FieldWriter final : public Fields {
 public:
  void operator()(const char* key, FieldValue&& value, const char* /*meaning*/) override {
    value.write(table, key);
  }
  toml::table table;
};

}  // namespace sluice::config
