// The fields that a JSON body may have: a table by endpoint. A field of a wrong kind, or one that would
// change the answer and is not followed, is refused by its name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json_fwd.h"

namespace sluice::http {

// What is wrong with one field of a request.
class FieldError : public base::InputError {
 public:
  FieldError(std::string field, const std::string& message) : InputError(message), field_(std::move(field)) {}
  const std::string& field() const { return field_; }

 private:
  std::string field_;
};

// Kinds of JSON values, to be joined by |. kWhole: numbers without a fraction alone.
enum Kind : unsigned { kFlag = 1, kWhole = 2, kNumber = 4, kText = 8, kList = 16, kObject = 32 };

// kFollowed: the reader takes it. kNoEffect: it changes nothing of the answer. kNeutralOnly: it would, and
// only values that ask for what happens anyway are taken.
enum class Use : uint8_t { kFollowed, kNoEffect, kNeutralOnly };

struct FieldRule {
  std::string_view name;
  unsigned kinds = 0;
  Use use = Use::kFollowed;
  std::string_view neutral =
      "";  // JSON of a value that changes nothing, beside null, false, 0 and what is empty
};

// FieldError naming the first field of `body` that no rule lets through.
void check_fields(const base::Json& body, std::span<const FieldRule> rules);

// InputError where JSON has more than `most` values, keys and commas counted: before anything is made of it.
void require_few_entries(std::string_view json, int64_t most);

}  // namespace sluice::http
