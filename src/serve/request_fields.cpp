#include "serve/request_fields.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace sluice::serve {

using base::Json;
using base::text;
using http::FieldError;

Json read_body(const std::string& body, std::span<const http::FieldRule> rules, int64_t json_entries) {
  http::require_few_entries(body, json_entries);
  Json json = base::parse_json(body, "the request's body");
  if (!json.is_object()) throw base::InputError("the request's body is no JSON object");
  http::check_fields(json, rules);
  return json;
}

int read_model(const Json& body, const std::string& model, const std::vector<std::string>& adapters) {
  const auto told = read_field<std::string>(body, "model");
  if (!told || *told == model) return -1;
  const auto adapter = std::ranges::find(adapters, *told);
  if (adapter != adapters.end()) return static_cast<int>(adapter - adapters.begin());
  const std::string others =
      adapters.empty() ? "" : text(" or its adapters '", base::join(adapters, "', '"), "'");
  throw UnknownModel("model", text("the model '", *told, "' is not served here: ask for '", model, "'",
                                   others, ", or leave model out"));
}

std::vector<int64_t> read_token_ids(const Json& list, const char* field, int64_t vocabulary) {
  std::vector<int64_t> ids;
  for (const Json& each : list) {
    const bool fits = each.is_number_integer() && each >= 0 && each < vocabulary;
    if (!fits)
      throw FieldError(field,
                       text(field, " has ", base::excerpt(each), ": give ids from 0 to ", vocabulary - 1));
    ids.push_back(each.get<int64_t>());
  }
  return ids;
}

void require_short(const char* field, const std::string& told, int64_t context_length) {
  constexpr int64_t kMostBytesOfToken = 128;
  const int64_t most = kMostBytesOfToken * std::max<int64_t>(context_length, 1024);
  if (std::ssize(told) <= most) return;
  throw FieldError(field, text(field, " has ", told.size(), " bytes, more than the ", context_length,
                               " tokens of this server's context can be: give less"));
}

std::vector<int64_t> encode_field(const char* field, const std::string& told,
                                  const corpus::Tokenizer& tokenizer, int64_t context_length) {
  require_short(field, told, context_length);
  std::vector<int64_t> ids;
  if (tokenizer.begin_id() >= 0) ids.push_back(tokenizer.begin_id());
  for (const int32_t id : tokenizer.encode(told)) ids.push_back(id);
  return ids;
}

}  // namespace sluice::serve
