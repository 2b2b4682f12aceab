#include "http/fields.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"

namespace sluice::http {
namespace {

using base::Json;
using base::text;

bool is_of(const Json& value, unsigned kinds) {
  if (value.is_boolean()) return (kinds & kFlag) != 0;
  if (value.is_number_integer()) return (kinds & (kWhole | kNumber)) != 0;
  if (value.is_number()) return (kinds & kNumber) != 0;
  if (value.is_string()) return (kinds & kText) != 0;
  return value.is_array() ? (kinds & kList) != 0 : (kinds & kObject) != 0;
}

std::string words_of(unsigned kinds) {
  constexpr std::array<std::pair<unsigned, const char*>, 6> kWords = {{{kFlag, "true or false"},
                                                                       {kWhole, "a whole number"},
                                                                       {kNumber, "a number"},
                                                                       {kText, "a text"},
                                                                       {kList, "a list"},
                                                                       {kObject, "an object"}}};
  std::string words;
  for (const auto& [kind, word] : kWords) {
    if ((kinds & kind) != 0) words += (words.empty() ? "" : ", or ") + std::string(word);
  }
  return words;
}

bool changes_nothing(const Json& value, std::string_view neutral) {
  if (value.is_null() || value == false || value == 0 || (value.is_structured() && value.empty()) ||
      value == "")
    return true;
  return !neutral.empty() && value == base::parse_json(std::string(neutral), "a neutral value");
}

}  // namespace

void check_fields(const Json& body, std::span<const FieldRule> rules) {
  for (const auto& [name, value] : body.items()) {
    if (value.is_null()) continue;
    const auto rule = std::ranges::find(rules, std::string_view(name), &FieldRule::name);
    if (rule == rules.end() || rule->use == Use::kNeutralOnly) {
      if (changes_nothing(value, rule == rules.end() ? "" : rule->neutral)) continue;
      throw FieldError(name, text(name, " is ", base::excerpt(value), ", which this server does not ",
                                  rule == rules.end() ? "know here" : "follow", ": leave it out"));
    }
    if (!is_of(value, rule->kinds))
      throw FieldError(name, text(name, " is ", base::excerpt(value), ": give ", words_of(rule->kinds)));
  }
}

void require_few_entries(std::string_view json, int64_t most) {
  constexpr std::string_view kMarks = ",:[{";
  int64_t entries = 0;
  bool inside = false;  // inside a quoted text
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '"') inside = !inside;
    if (json[i] == '\\' && inside) ++i;
    if (!inside && kMarks.find(json[i]) != std::string_view::npos && ++entries > most)
      throw base::InputError(
          text("the request's body has more than ", most, " JSON values: send less at once"));
  }
}

}  // namespace sluice::http
