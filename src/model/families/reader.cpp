#include "model/families/reader.h"

#include "base/error.h"
#include "base/text.h"

namespace sluice::model {
namespace {

using base::InputError;
using base::Json;
using base::text;

// Null and false switch nothing on under any key.
bool is_off(const Json& value) { return value.is_null() || value == Json(false); }

// Zero and empty values switch nothing on either, under an unknown key.
bool says_nothing(const Json& value) {
  const bool empty = (value.is_structured() && value.empty()) || value == Json("");
  return is_off(value) || empty || (value.is_number() && value == 0);
}

}  // namespace

bool Reader::says(const std::string& key) {
  noted_.insert(key);
  return config_.contains(key);
}

const Json* Reader::find(const std::string& key) {
  return says(key) && !config_.at(key).is_null() ? &config_.at(key) : nullptr;
}

int64_t Reader::count(const std::string& key, const base::Range<int64_t>& range) {
  noted_.insert(key);
  return base::require_in(config_, key, range, name_);
}

double Reader::number(const std::string& key, const base::Range<double>& range) {
  noted_.insert(key);
  return base::require_in(config_, key, range, name_);
}

int64_t Reader::count_or(int64_t absent, const std::string& key, const base::Range<int64_t>& range) {
  return find(key) != nullptr ? count(key, range) : absent;
}

double Reader::number_or(double absent, const std::string& key, const base::Range<double>& range) {
  return find(key) != nullptr ? number(key, range) : absent;
}

std::string Reader::text_or(const std::string& absent, const std::string& key) {
  noted_.insert(key);
  return base::get_or<std::string>(config_, key, absent, name_);
}

bool Reader::has(const std::string& flag) {
  noted_.insert(flag);
  return base::get_or<bool>(config_, flag, false, name_);
}

bool Reader::lacks(const std::string& flag) {
  noted_.insert(flag);
  return !base::get_or<bool>(config_, flag, true, name_);
}

const Json& Reader::required(const std::string& key) {
  if (!says(key)) base::refuse_without(key, "a value", name_);
  return config_.at(key);
}

void Reader::only(const std::string& key, const Json& value) {
  const Json* const found = find(key);
  if (found != nullptr && *found != value) refuse(key, *found, text(key, " ", base::json_text(value)));
}

void Reader::off(const std::string& key) {
  const Json* const found = find(key);
  if (found != nullptr && !is_off(*found)) refuse(key, *found, "models without it");
}

void Reader::pass(std::initializer_list<const char*> keys) {
  for (const char* const key : keys) noted_.emplace(key);
}

void Reader::refuse(const std::string& key, const Json& value, const std::string& expected) const {
  throw InputError(
      text(name_, ": ", key, " is ", base::excerpt(value), " but Sluice computes only ", expected));
}

std::string Reader::unread() const {
  for (const auto& [key, value] : config_.items()) {
    if (!noted_.contains(key) && !changes_no_arithmetic(key) && !says_nothing(value)) return key;
  }
  return "";
}

}  // namespace sluice::model
