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

// The end of the string that begins at `begin`: after its closing quotes. An unclosed string ends at the end
// of its line, an unclosed multi-line string at the end of the text.
size_t end_of_string(std::string_view bytes, size_t begin) {
  const char quote = bytes[begin];
  const std::string whole(3, quote);
  const bool many_lines = bytes.substr(begin).starts_with(whole);
  const std::string closing = many_lines ? whole : whole.substr(0, 1);
  size_t at = begin + closing.size();
  while (at < bytes.size() && (many_lines || bytes[at] != '\n')) {
    if (bytes.substr(at).starts_with(closing)) {
      // Up to two quotes may precede the closing ones.
      size_t end = at + closing.size();
      for (int more = 0; many_lines && more < 2 && end < bytes.size() && bytes[end] == quote; ++more) ++end;
      return end;
    }
    at += quote == '"' && bytes[at] == '\\' ? 2 : 1;
  }
  return std::min(at, bytes.size());
}

// The character that begins at `at`; its first byte alone if it is malformed.
std::string character_at(std::string_view bytes, size_t at) {
  return std::string(bytes.substr(at, std::max<size_t>(1, utf8_character_size(bytes.substr(at)))));
}

// InputError for two things outside of strings and comments that toml++ 3.3 cannot handle. Keys with too many
// parts (no character but parts of keys between their dots) make it recurse once per part. Characters that
// are not ASCII, which TOML does not allow there, make it reach code marked unreachable when it tests whether
// they are white space.
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
      // Inside a bare value the parser takes a quote as part of the value, along with all that follows.
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

// Whether the text fails an assertion of the library, whose message does not give the line.
bool fails_assertion(std::string_view bytes) {
  try {
    static_cast<void>(toml::parse(bytes));
  } catch (const std::invalid_argument&) {
    return true;
  } catch (const toml::parse_error&) {
    // Expected: the text is cut off and therefore incomplete.
  }
  return false;
}

// Finds, by bisection, the line with which the text begins to fail an assertion: the parser reads in order.
int64_t line_of_assertion(const std::string& bytes) {
  std::vector<size_t> ends;  // ends of lines
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
  // Texts get double quotes, in which control characters become escapes; in single quotes a terminal would
  // obey them. All texts stay on one line: the library drops a line feed at the start of a multi-line text.
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
