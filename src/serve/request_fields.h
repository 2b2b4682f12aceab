// Fields that requests of several endpoints share, read the same way everywhere.
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

// Nothing if the field is missing or null.
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

// The body as a JSON object of at most `json_entries` entries, with fields that `rules` allow.
base::Json read_body(const std::string& body, std::span<const http::FieldRule> rules, int64_t json_entries);

// The index of the adapter that the body names; -1: the
// model itself, or no name. UnknownModel for other names.
int read_model(const base::Json& body, const std::string& model, const std::vector<std::string>& adapters);

// The token ids in a list. FieldError if one is outside the vocabulary.
std::vector<int64_t> read_token_ids(const base::Json& list, const char* field, int64_t vocabulary);

// Refuses a text that cannot fit before it is tokenized, which takes seconds per megabyte.
void require_short(const char* field, const std::string& text, int64_t context_length);

// The tokens of a text, which begins as a document does. FieldError as require_short().
std::vector<int64_t> encode_field(const char* field, const std::string& text,
                                  const corpus::Tokenizer& tokenizer, int64_t context_length);

}  // namespace sluice::serve
