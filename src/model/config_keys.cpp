#include "model/config_keys.h"

#include "base/error.h"
#include "base/text.h"

namespace sluice::model {

using base::InputError;
using base::Json;
using base::text;

void refuse(const std::string& name, const std::string& key, const Json& value, const std::string& expected) {
  throw InputError(
      text(name, ": ", key, " is ", base::excerpt(value), " but Sluice computes only ", expected));
}

bool is_off(const Json& value) { return value.is_null() || value == Json(false); }

bool says_nothing(const Json& value) {
  const bool empty = (value.is_structured() && value.empty()) || value == Json("");
  return is_off(value) || empty || (value.is_number() && value == 0);
}

void require_off(const Json& config, const std::string& key, const std::string& name) {
  if (config.contains(key) && !is_off(config.at(key))) refuse(name, key, config.at(key), "models without it");
}

int64_t size_or(int64_t absent, const Json& config, const char* key, const base::Range<int64_t>& range,
                const std::string& name) {
  const bool there = config.contains(key) && !config.at(key).is_null();
  return there ? base::require_in(config, key, range, name) : absent;
}

void require_only(const Json& config, const std::string& key, const Json& only, const std::string& name) {
  if (config.contains(key) && !config.at(key).is_null() && config.at(key) != only) {
    refuse(name, key, config.at(key), text(key, " ", base::json_text(only)));
  }
}

}  // namespace sluice::model
