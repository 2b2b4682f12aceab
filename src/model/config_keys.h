// What reading a config.json refuses, said alike for every family. For the model module's own files.
#pragma once

#include <string>
#include <string_view>

#include "base/json_fields.h"
#include "base/json_fwd.h"

namespace sluice::model {

// InputError: the key's value is none of what Sluice computes, which is `expected`.
[[noreturn]] void refuse(const std::string& name, const std::string& key, const base::Json& value,
                         const std::string& expected);
// Whether models compute and cost the same whatever the key's value (free_keys.cpp).
bool changes_no_arithmetic(std::string_view key);
// Null and false switch nothing on, whatever the key.
bool is_off(const base::Json& value);
// Nor does zero or something empty under a key that is not known.
bool says_nothing(const base::Json& value);
// InputError when the key is there and on.
void require_off(const base::Json& config, const std::string& key, const std::string& name);
// The key's value, or `absent` where it is not there or null. InputError outside of `range`.
int64_t size_or(int64_t absent, const base::Json& config, const char* key, const base::Range<int64_t>& range,
                const std::string& name);
// InputError when the key is there, not null, and not `only`.
void require_only(const base::Json& config, const std::string& key, const base::Json& only,
                  const std::string& name);

}  // namespace sluice::model
