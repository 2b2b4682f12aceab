// The fields that a JSON body may have: a table for each endpoint. A field is refused by its name if its kind
// is wrong, or if it would change the answer and is not supported.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json_fwd.h"

namespace sluice::http {

// A fault of one field of a request, with the field's name.
class FieldError : public base::InputError {
 public:
  FieldError(std::string field, const std::string& message) : InputError(message), field_(std::move(field)) {}
  const std::string& field() const { return field_; }

 private:
  std::string field_;
};

// Kinds of JSON values, combined by |. kWhole: only numbers without a fraction.
enum Kind : unsigned { kFlag = 1, kWhole = 2, kNumber = 4, kText = 8, kList = 16, kObject = 32 };

// kFollowed: the field is supported. kNoEffect: it never changes the answer. kNeutralOnly: it would change
// the answer, so only values are accepted that ask for the default behavior.
enum class Use : uint8_t { kFollowed, kNoEffect, kNeutralOnly };

struct FieldRule {
  std::string_view name;
  unsigned kinds = 0;
  Use use = Use::kFollowed;
  std::string_view neutral = "";  // JSON of a value without effect, besides null, false, 0 and empty values
};

// FieldError naming the first field of `body` that no rule permits.
void check_fields(const base::Json& body, std::span<const FieldRule> rules);

// InputError if JSON text has more than `most` values, keys and commas included. It is called before parsing.
void require_few_entries(std::string_view json, int64_t most);

}  // namespace sluice::http
