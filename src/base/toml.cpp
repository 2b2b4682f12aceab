#include "base/toml.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"

namespace sluice::base {

namespace {

// Where the string ends that begins at `begin`: behind its closing quotes, or, without them, at the end of
// the line or, where it may have several, of all.
size_t end_of_string(std::string_view bytes, size_t begin) {
  const char quote = bytes[begin];
  const std::string whole(3, quote);
  const bool many_lines = bytes.substr(begin).starts_with(whole);
  const std::string closing = many_lines ? whole : whole.substr(0, 1);
  size_t at = begin + closing.size();
  while (at < bytes.size() && (many_lines || bytes[at] != '\n')) {
    if (bytes.substr(at).starts_with(closing)) {
      // Up to two quotes may stand in front of the closing ones.
      size_t end = at + closing.size();
      for (int more = 0; many_lines && more < 2 && end < bytes.size() && bytes[end] == quote; ++more) ++end;
      return end;
    }
    at += quote == '"' && bytes[at] == '\\' ? 2 : 1;
  }
  return std::min(at, bytes.size());
}

// The character that begins at `at`, or its first byte where it is none.
std::string character_at(std::string_view bytes, size_t at) {
  return std::string(bytes.substr(at, std::max<size_t>(1, utf8_character_size(bytes.substr(at)))));
}

// InputError for what the parser must not meet outside of strings and comments: a key of too many parts (dots
// with nothing but parts of keys between them), since it calls itself for each, and characters that are not
// ASCII. TOML has none there, and toml++ 3.3 runs into what it calls unreachable when it asks whether one is
// white space.
void check_outside_of_strings(std::string_view bytes, const std::string& name) {
  constexpr std::string_view kBehindKeys = "=,[]{}\n";
  constexpr std::string_view kInFrontOfStrings = " \t\r\n=,[{.";
  if (const char* encoding = wide_encoding(bytes))
    throw InputError(text(name, ":1: the text is ", encoding, ": save it as UTF-8"));
  int dots = 0;
  const size_t first = bytes.size() - without_byte_order_mark(bytes).size();
  size_t at = first;
  const auto refuse = [&](const std::string& fault) {
    const auto line = 1 + std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    throw InputError(text(name, ":", line, ": ", fault));
  };
  while (at < bytes.size()) {
    const char c = bytes[at];
    if (c == '"' || c == '\'') {
      // Within a bare value the parser takes a quote for a part of it, and so what follows.
      if (at > first && kInFrontOfStrings.find(bytes[at - 1]) == std::string_view::npos)
        refuse(text(c, " stands behind what is not in quotes: put all of it in quotes"));
      at = end_of_string(bytes, at);
      continue;
    }
    if (c == '#') {
      at = std::min(bytes.find('\n', at), bytes.size());
      continue;
    }
    if (static_cast<unsigned char>(c) > 0x7F) {
      refuse(text("'", character_at(bytes, at), "' stands outside of quotes: put the text in quotes"));
    }
    if (kBehindKeys.find(c) != std::string_view::npos) dots = 0;
    if (c == '.' && ++dots >= kDeepestTomlKey) {
      refuse(text("a key has more than ", kDeepestTomlKey,
                  " parts with dots between them: no key that is read has more than 3"));
    }
    ++at;
  }
}

// Whether an assertion of the library fails on the text, which says nothing of where.
bool fails_assertion(std::string_view bytes) {
  try {
    static_cast<void>(toml::parse(bytes));
  } catch (const std::invalid_argument&) {
    return true;
  } catch (const toml::parse_error&) {
    // Of what the text, cut off, lacks.
  }
  return false;
}

// The line with which the text begins to fail an assertion: the parser reads in order.
int64_t line_of_assertion(const std::string& bytes) {
  std::vector<size_t> ends;  // of the lines
  for (size_t at = bytes.find('\n'); at != bytes.npos; at = bytes.find('\n', at + 1)) ends.push_back(at + 1);
  const auto failing = std::partition_point(ends.begin(), ends.end(), [&](size_t end) {
    return !fails_assertion(std::string_view(bytes).substr(0, end));
  });
  return 1 + (failing - ends.begin());
}

}  // namespace

toml::table parse_toml(const std::string& bytes, const std::string& name) {
  check_outside_of_strings(bytes, name);
  try {
    return toml::parse(bytes, name);
  } catch (const toml::parse_error& error) {
    throw InputError(text(name, ":", error.source().begin.line, ": ", error.description(), ": correct it"));
  } catch (const std::invalid_argument&) {
    throw InputError(text(name, ":", line_of_assertion(bytes), ": this is not TOML: correct it"));
  }
}

std::string toml_text(const toml::node& value) {
  // Texts in double quotes: a control character is an escape there, and what it is in single ones, a terminal
  // shows as one. On one line: the library leaves out a line end that a text of several lines begins with.
  const auto flags = toml::toml_formatter::default_flags & ~toml::format_flags::allow_literal_strings &
                     ~toml::format_flags::allow_multi_line_strings;
  std::ostringstream out;
  out << toml::toml_formatter(value, flags);
  return out.str();
}

Json parse_toml_as_json(const std::string& bytes, const std::string& name) {
  std::ostringstream out;
  out << toml::json_formatter(parse_toml(bytes, name));
  return parse_json(out.str(), name);
}

}  // namespace sluice::base
