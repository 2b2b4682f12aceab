// Fields that the requests of several endpoints have, read the same way everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json_fields.h"
#include "corpus/tokenizer.h"
#include "http/fields.h"

namespace sluice::serve {

// The request is for a model that is not served here.
class UnknownModel : public http::FieldError {
 public:
  using FieldError::FieldError;
};

inline constexpr const char* kRequestName = "the request";

// Nothing where the field is not there or null.
template <typename T>
std::optional<T> read_field(const base::Json& body, const char* key) {
  if (!body.contains(key) || body.at(key).is_null()) return std::nullopt;
  return base::require<T>(body, key, kRequestName);
}

template <typename T>
void require_field_in(const char* field, T value, base::Range<T> range) {
  try {
    base::require_in_range(field, value, range);
  } catch (const base::InputError& error) {
    throw http::FieldError(field, error.what());
  }
}

// The body as a JSON object with fields that `rules` let through, of no more than so many entries.
base::Json read_body(const std::string& body, std::span<const http::FieldRule> rules, int64_t json_entries);

// Which of the model's adapters the body names; -1: the model itself, or none. UnknownModel where it names
// another.
int read_model(const base::Json& body, const std::string& model, const std::vector<std::string>& adapters);

// FieldError where one is no id of the vocabulary.
std::vector<int64_t> read_token_ids(const base::Json& list, const char* field, int64_t vocabulary);

// Whether a text can fit is known before it is taken apart, which takes a tokenizer seconds a megabyte.
void require_short(const char* field, const std::string& text, int64_t context_length);

// The tokens of a text as a document begins. FieldError as require_short().
std::vector<int64_t> encode_field(const char* field, const std::string& text,
                                  const corpus::Tokenizer& tokenizer, int64_t context_length);

}  // namespace sluice::serve
