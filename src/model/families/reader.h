// A config.json as a family reads it. A reader notes each key that was asked for. Any other key that switches
// something on is a feature that Sluice does not compute.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

#include "base/json_fields.h"
#include "base/json_fwd.h"

namespace sluice::model {

// Whether models compute and cost the same for any value of the key (free_keys.cpp).
bool changes_no_arithmetic(std::string_view key);

// All members but const ones note the key. Errors are InputErrors that name the file, the key and the value.
class Reader {
 public:
  // `config` is an object and outlives the reader; `name` is the file's.
  Reader(const base::Json& config, std::string name) : config_(config), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  // The file, for functions that read keys from it themselves; pass() notes their keys.
  const base::Json& json() const { return config_; }

  // Whether the file has the key, even as null.
  bool says(const std::string& key);
  // The key's value; nullptr: it is absent or null.
  const base::Json* find(const std::string& key);
  int64_t count(const std::string& key, const base::Range<int64_t>& range);
  double number(const std::string& key, const base::Range<double>& range);
  // The value, or `absent` if the key is absent or null.
  int64_t count_or(int64_t absent, const std::string& key, const base::Range<int64_t>& range);
  double number_or(double absent, const std::string& key, const base::Range<double>& range);
  std::string text_or(const std::string& absent, const std::string& key);
  bool has(const std::string& flag);    // false if the key is absent
  bool lacks(const std::string& flag);  // the flag is false; an absent key means true
  const base::Json& required(const std::string& key);

  // InputError unless the key is absent or null, or is `value` (only) or false (off).
  void only(const std::string& key, const base::Json& value);
  void off(const std::string& key);
  // Notes keys that change nothing, or whose values were read from json().
  void pass(std::initializer_list<const char*> keys);
  // Throws the InputError; `expected` names the values that Sluice computes.
  [[noreturn]] void refuse(const std::string& key, const base::Json& value,
                           const std::string& expected) const;

  // The first key that was not asked for and that switches something on; "": there is none.
  std::string unread() const;

 private:
  const base::Json& config_;
  std::string name_;
  std::set<std::string, std::less<>> noted_;
};

}  // namespace sluice::model
