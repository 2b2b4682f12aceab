// A key of a run configuration: its value, as TOML holds it. Include only in .cpp files.
#pragma once

#include <string>

#include "config/toml_section.h"

namespace sluice::config {

// Reads a key's value from TOML, writes it to TOML and describes it to people.
class FieldValue {
 public:
  virtual ~FieldValue() = default;
  // Reads the value under `key`. InputError as TomlSection::refuse.
  virtual void read(TomlSection& section, const std::string& key) = 0;
  // Writes nothing if the value is none.
  virtual void write(toml::table& table, const std::string& key) const = 0;
  // "a whole number from 1 to 4096"; empty if the default as written is description enough.
  virtual std::string expectation() const { return ""; }
};

// A visitor of a section's keys.
class Fields {
 public:
  virtual ~Fields() = default;
  // `meaning` describes the key to people; possible values are described by FieldValue::expectation.
  virtual void operator()(const char* key, FieldValue&& value, const char* meaning) = 0;
};

// Reads the keys that a section contains; other values stay unchanged.
class FieldReader final : public Fields {
 public:
  explicit FieldReader(TomlSection& section) : section_(section) {}
  void operator()(const char* key, FieldValue&& value, const char* /*meaning*/) override {
    if (section_.node(key) != nullptr) value.read(section_, key);
  }

 private:
  TomlSection& section_;
};

// Writes all keys.
class FieldWriter final : public Fields {
 public:
  void operator()(const char* key, FieldValue&& value, const char* /*meaning*/) override {
    value.write(table, key);
  }
  toml::table table;
};

}  // namespace sluice::config
