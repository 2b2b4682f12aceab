#include "base/toml.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace sluice::base {

namespace {

// Where the string ends that begins at `begin`: behind its closing quote, or at the line's end.
size_t end_of_string(std::string_view bytes, size_t begin) {
  const char quote = bytes[begin];
  size_t at = begin + 1;
  while (at < bytes.size() && bytes[at] != quote && bytes[at] != '\n') {
    at += quote == '"' && bytes[at] == '\\' ? 2 : 1;
  }
  return at < bytes.size() && bytes[at] == quote ? at + 1 : std::min(at, bytes.size());
}

// InputError for a key of too many parts: dots with nothing but parts of keys between them.
void refuse_deep_keys(std::string_view bytes, const std::string& name) {
  constexpr std::string_view kBehindKeys = "=,[]{}\n";
  int dots = 0;
  int64_t line = 1;
  for (size_t at = 0; at < bytes.size();) {
    const char c = bytes[at];
    if (c == '"' || c == '\'') {
      at = end_of_string(bytes, at);
      continue;
    }
    if (c == '#') {
      at = std::min(bytes.find('\n', at), bytes.size());
      continue;
    }
    if (kBehindKeys.find(c) != std::string_view::npos) dots = 0;
    if (c == '.' && ++dots >= kDeepestTomlKey) {
      throw InputError(text(name, ":", line, ": a key has more than ", kDeepestTomlKey,
                            " parts with dots between them: no key that is read has more than 3"));
    }
    line += c == '\n' ? 1 : 0;
    ++at;
  }
}

}  // namespace

toml::table parse_toml(const std::string& bytes, const std::string& name) {
  refuse_deep_keys(bytes, name);
  try {
    return toml::parse(bytes, name);
  } catch (const toml::parse_error& error) {
    throw InputError(text(name, ":", error.source().begin.line, ": ", error.description(), ": correct it"));
  } catch (const std::invalid_argument& error) {
    throw InputError(text(name, ": ", error.what(), ": correct it"));
  }
}

Json parse_toml_as_json(const std::string& bytes, const std::string& name) {
  std::ostringstream out;
  out << toml::json_formatter(parse_toml(bytes, name));
  return parse_json(out.str(), name);
}

}  // namespace sluice::base
