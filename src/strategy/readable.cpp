#include "strategy/readable.h"

#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace sluice::strategy {
namespace {

// Longer than any scheme's text; brackets may enclose any text.
constexpr size_t kLongest = 64;

std::optional<Scheme> scheme_in(std::string_view written) {
  if (written.size() > kLongest) return std::nullopt;
  try {
    return parse_scheme(written);
  } catch (const base::InputError&) {
    return std::nullopt;
  }
}

// Drops the count "1x" before a scheme, but not the end of "11x"; puts a space behind other counts.
void end_count(std::string& before) {
  if (!before.ends_with('x')) return;
  size_t digits = before.size() - 1;
  while (digits > 0 && before[digits - 1] >= '0' && before[digits - 1] <= '9') --digits;
  if (digits == before.size() - 1) return;
  if (before.substr(digits) == "1x") {
    before.resize(digits);
  } else {
    before += ' ';
  }
}

}  // namespace

std::string readable(const Strategy& strategy) { return readable_text(to_text(strategy)); }

std::string readable_text(std::string_view text) {
  std::string out;
  while (true) {
    const size_t begin = text.find('<');
    const size_t end = begin == std::string_view::npos ? begin : text.find('>', begin);
    if (end == std::string_view::npos) break;
    const auto scheme = scheme_in(text.substr(begin, end + 1 - begin));
    out += text.substr(0, begin);
    if (scheme) end_count(out);
    out += scheme ? readable(*scheme) : "<";
    text.remove_prefix(scheme ? end + 1 : begin + 1);
  }
  out += text;
  return out;
}

}  // namespace sluice::strategy
