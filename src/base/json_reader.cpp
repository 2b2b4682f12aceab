#include "base/json_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace sluice::base {

namespace {

// Objects with fewer keys are searched linearly for a key that occurs twice.
constexpr size_t kFewKeys = 16;

// Thrown at the first fault and caught by read_json_text().
struct Refusal {
  size_t at;
  std::string what;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class JsonParser {
 public:
  JsonParser(std::string_view bytes, JsonDialect dialect) : bytes_(bytes), dialect_(dialect) {}

  Json parse() {
    if (const char* encoding = wide_encoding(bytes_)) refuse(text("it is ", encoding, ": save it as UTF-8"));
    at_ = bytes_.size() - without_byte_order_mark(bytes_).size();
    Json root;
    begin_value(root);
    while (!open_.empty()) go_on();
    skip_space();
    if (at_ < bytes_.size()) refuse(text(next_character(), " stands behind the value: remove it"));
    return root;
  }

 private:
  // A list or an object that has begun and not yet ended.
  struct Open {
    Json* value;
    bool is_list;
    std::unordered_map<std::string, size_t> places;  // index of each key, once an object has many
  };

  [[noreturn]] void refuse(std::string what) const { throw Refusal{at_, std::move(what)}; }

  // The next character, printable for a message.
  std::string next_character() const {
    if (at_ >= bytes_.size()) return "the end of the text";
    const std::string_view rest = bytes_.substr(at_);
    const size_t size = std::max<size_t>(1, utf8_character_size(rest));
    return text("'", printable(rest.substr(0, size)), "'");
  }

  void skip_space() {
    while (at_ < bytes_.size() &&
           (bytes_[at_] == ' ' || bytes_[at_] == '\n' || bytes_[at_] == '\t' || bytes_[at_] == '\r'))
      ++at_;
  }

  char peek() const { return at_ < bytes_.size() ? bytes_[at_] : '\0'; }
  bool at_end() const { return at_ >= bytes_.size(); }

  // Reads a number, a text or a word whole; of a list or an object only the opening bracket.
  void begin_value(Json& into) {
    skip_space();
    const char c = peek();
    if (c == '{' || c == '[') {
      if (std::ssize(open_) == kDeepestJson)
        refuse(text("more than ", kDeepestJson, " values stand inside one another: nest them less"));
      into = c == '{' ? Json::object() : Json::array();
      open_.push_back({&into, c == '[', {}});
      ++at_;
    } else if (c == '"') {
      into = read_text();
    } else if (c == '-' || is_digit(c)) {
      read_number(into);
    } else {
      read_word(into);
    }
  }

  // Reads the next member of the innermost list or object, or its closing bracket.
  void go_on() {
    Open& open = open_.back();
    const char closing = open.is_list ? ']' : '}';
    skip_space();
    if (peek() == closing && !at_end()) {
      ++at_;
      open_.pop_back();
      return;
    }
    if (!open.value->empty()) {
      if (peek() != ',')
        refuse(text(next_character(), " stands where a comma or '", closing,
                    "' should: ", at_end() ? "the text is cut off" : "correct it"));
      ++at_;
      skip_space();
      if (peek() == closing) refuse(text("a comma stands in front of '", closing, "': remove it"));
    }
    if (open.is_list) {
      begin_value(open.value->get_ref<Json::array_t&>().emplace_back());
    } else {
      begin_member(open);
    }
  }

  void begin_member(Open& open) {
    if (peek() != '"')
      refuse(text(next_character(), " stands where a key in double quotes should begin: ",
                  at_end() ? "the text is cut off" : "correct it"));
    std::string key = read_text();
    skip_space();
    if (peek() != ':')
      refuse(text(next_character(), " stands where the ':' behind a key should: ",
                  at_end() ? "the text is cut off" : "correct it"));
    ++at_;
    begin_value(member_of(open, std::move(key)));
  }

  // The value of `key`, new or not. The library's own look-up is linear, which would make parsing quadratic.
  static Json& member_of(Open& open, std::string key) {
    auto& members = open.value->get_ref<Json::object_t&>();
    auto& all = static_cast<Json::object_t::Container&>(members);
    if (all.size() < kFewKeys) return members[key];
    if (open.places.empty()) {
      for (size_t i = 0; i < all.size(); ++i) open.places.emplace(all[i].first, i);
    }
    const auto [place, is_new] = open.places.emplace(key, all.size());
    if (!is_new) return all[place->second].second = Json();
    return all.emplace_back(std::move(key), Json()).second;
  }

  std::string read_text() {
    std::string out;
    ++at_;
    while (true) {
      const size_t begin = at_;
      while (at_ < bytes_.size() && is_plain(bytes_[at_])) ++at_;
      out.append(bytes_.substr(begin, at_ - begin));
      if (at_end()) refuse("the text ends inside a string: it is cut off");
      const char c = bytes_[at_];
      if (c == '"') {
        ++at_;
        return out;
      }
      if (c == '\\') {
        read_escape(out);
      } else if (static_cast<uint8_t>(c) < 0x20) {
        refuse(text("a string holds ", c == '\n' ? "a line end" : "a control character",
                    ", which JSON writes as an escape (", c == '\n' ? "\\n" : "\\u00…", "): correct it"));
      } else {
        const size_t size = utf8_character_size(bytes_.substr(at_));
        if (size == 0) refuse("a string holds bytes that are not UTF-8: convert it");
        out.append(bytes_.substr(at_, size));
        at_ += size;
      }
    }
  }

  static bool is_plain(char c) {
    return static_cast<uint8_t>(c) >= 0x20 && static_cast<uint8_t>(c) < 0x80 && c != '"' && c != '\\';
  }

  void read_escape(std::string& out) {
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
    const char letter = at_ + 1 < bytes_.size() ? bytes_[at_ + 1] : '\0';
    if (letter == 'u') return append_utf8(read_code_point(), out);
    const size_t found = letter == '\0' ? kLetters.npos : kLetters.find(letter);
    if (found == kLetters.npos)
      refuse("a backslash in a string begins no escape that JSON has: write \\\\ for the character itself");
    out += kMeant[found];
    at_ += 2;
  }

  // The code point after "\u". Characters beyond U+FFFF take two such escapes (surrogates).
  char32_t read_code_point() {
    const size_t begin = at_;
    const char32_t first = read_unit();
    if (first < 0xD800 || first > 0xDFFF) return first;
    const bool high = first < 0xDC00;
    if (high && bytes_.substr(at_).starts_with("\\u")) {
      const char32_t second = read_unit();
      if (second >= 0xDC00 && second <= 0xDFFF) return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    }
    at_ = begin;
    refuse(text("'", bytes_.substr(begin, 6),
                "' is half of a surrogate pair and has no other half: write the ",
                "character itself, or both halves"));
  }

  char32_t read_unit() {
    char32_t unit = 0;
    for (size_t i = at_ + 2; i < at_ + 6; ++i) {
      const char c = i < bytes_.size() ? bytes_[i] : '\0';
      int digit = -1;
      if (is_digit(c)) digit = c - '0';
      if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
      if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
      if (digit < 0) refuse("\\u in a string is followed by fewer than four hexadecimal digits: give four");
      unit = unit << 4 | static_cast<char32_t>(digit);
    }
    at_ += 6;
    return unit;
  }

  static void append_utf8(char32_t point, std::string& out) {
    const auto byte = [&](char32_t value) { out += static_cast<char>(value); };
    if (point < 0x80) return byte(point);
    if (point < 0x800) {
      byte(0xC0 | point >> 6);
    } else if (point < 0x10000) {
      byte(0xE0 | point >> 12);
      byte(0x80 | (point >> 6 & 0x3F));
    } else {
      byte(0xF0 | point >> 18);
      byte(0x80 | (point >> 12 & 0x3F));
      byte(0x80 | (point >> 6 & 0x3F));
    }
    byte(0x80 | (point & 0x3F));
  }

  // -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
  void read_number(Json& into) {
    const size_t begin = at_;
    const auto digits = [&] {
      const size_t first = at_;
      while (is_digit(peek())) ++at_;
      return at_ - first;
    };
    if (peek() == '-') ++at_;
    if (peek() == 'I') {
      at_ = begin;
      return read_word(into);
    }
    bool sound = true, whole = true;
    const bool zero = peek() == '0';
    const size_t count = digits();
    sound = count > 0 && (!zero || count == 1);
    if (sound && peek() == '.') {
      ++at_;
      whole = false;
      sound = digits() > 0;
    }
    if (sound && (peek() == 'e' || peek() == 'E')) {
      ++at_;
      whole = false;
      if (peek() == '+' || peek() == '-') ++at_;
      sound = digits() > 0;
    }
    const std::string_view written = bytes_.substr(begin, at_ - begin);
    if (!sound) {
      at_ = begin;
      refuse(text("'", beginning(written, 40),
                  "' is no number of JSON: write it as -12.5e3, without a zero or a plus in front"));
    }
    convert(written, whole, into);
  }

  void convert(std::string_view written, bool whole, Json& into) const {
    const char* const end = written.data() + written.size();
    if (whole) {
      int64_t integer = 0;
      uint64_t natural = 0;
      if (written[0] != '-' && std::from_chars(written.data(), end, natural).ec == std::errc()) {
        into = natural;
        return;
      }
      if (written[0] == '-' && std::from_chars(written.data(), end, integer).ec == std::errc()) {
        into = integer;
        return;
      }
    }
    double number = 0;
    if (std::from_chars(written.data(), end, number).ec != std::errc()) {
      number = std::strtod(std::string(written).c_str(), nullptr);  // underflow or overflow: 0 or infinite
    }
    if (std::isinf(number) && dialect_ == JsonDialect::kStrict)
      throw Refusal{
          static_cast<size_t>(written.data() - bytes_.data()),
          text("the number ", beginning(written, 40), " is beyond what 64 bits hold: give a smaller one")};
    into = number;
  }

  void read_word(Json& into) {
    struct Word {
      std::string_view name;
      Json value;
    };
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    const std::string_view rest = bytes_.substr(at_);
    for (const auto& [name, value] : {Word{"true", true}, Word{"false", false}, Word{"null", nullptr}}) {
      if (rest.starts_with(name)) return take_word(name, value, into);
    }
    for (const auto& [name, value] : {Word{"NaN", std::numeric_limits<double>::quiet_NaN()},
                                      Word{"Infinity", kInfinite}, Word{"-Infinity", -kInfinite}}) {
      if (!rest.starts_with(name)) continue;
      if (dialect_ == JsonDialect::kPython) return take_word(name, value, into);
      refuse(text(name,
                  " is not JSON, only Python writes it for figures that are missing or too large: write null "
                  "or a number"));
    }
    if (at_end()) refuse("the text ends where a value should begin: it is empty or cut off");
    refuse(text(next_character(), " stands where a value should begin: correct it"));
  }

  void take_word(std::string_view name, const Json& value, Json& into) {
    at_ += name.size();
    into = value;
  }

  std::string_view bytes_;
  JsonDialect dialect_;
  size_t at_ = 0;
  std::vector<Open> open_;
};

JsonFault fault_at(std::string_view bytes, const Refusal& refusal) {
  JsonFault fault{.what = refusal.what};
  const std::string_view before = bytes.substr(0, std::min(refusal.at, bytes.size()));
  fault.line += std::ranges::count(before, '\n');
  const size_t line_end = before.rfind('\n');
  const std::string_view line = line_end == before.npos ? before : before.substr(line_end + 1);
  fault.column +=
      std::ranges::count_if(line, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
  return fault;
}

// Whether `name` has the form "FILE:17": the text is line 17 of a file.
bool is_place(std::string_view name) {
  const size_t colon = name.rfind(':');
  return colon != name.npos && colon + 1 < name.size() &&
         std::ranges::all_of(name.substr(colon + 1), is_digit);
}

}  // namespace

std::optional<JsonFault> read_json_text(std::string_view bytes, JsonDialect dialect, Json& value) {
  try {
    if (std::ssize(bytes) > kMostJsonBytes)
      throw Refusal{0, text("it has ", bytes.size(), " bytes: at most ", kMostJsonBytes, " are read")};
    value = JsonParser(bytes, dialect).parse();
    return std::nullopt;
  } catch (const Refusal& refusal) {
    return fault_at(bytes, refusal);
  }
}

std::string described(const JsonFault& fault, const std::string& name) {
  if (is_place(name)) return text(name, " is not JSON at column ", fault.column, ": ", fault.what);
  return text(name, ":", fault.line, ":", fault.column, " is not JSON: ", fault.what);
}

bool is_json(std::string_view bytes) {
  Json ignored;
  return !read_json_text(bytes, JsonDialect::kStrict, ignored);
}

namespace {

Json parsed(std::string_view bytes, const std::string& name, JsonDialect dialect) {
  Json value;
  if (const auto fault = read_json_text(bytes, dialect, value)) throw InputError(described(*fault, name));
  return value;
}

}  // namespace

Json parse_json(const std::string& bytes, const std::string& name) {
  return parsed(bytes, name, JsonDialect::kStrict);
}

Json parse_python_json(std::string_view bytes, const std::string& name) {
  return parsed(bytes, name, JsonDialect::kPython);
}

Json read_python_json(const std::filesystem::path& path) {
  return parse_python_json(read_file(path), path.string());
}

}  // namespace sluice::base
