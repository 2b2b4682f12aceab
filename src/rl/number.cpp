#include "rl/number.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sluice::rl {
namespace {

constexpr size_t kMostDigits = 4096;  // longer numbers are not compared: their texts are no answers
constexpr int64_t kMostExponent = 1'000'000;
constexpr char kGroup = '\x01';  // a mark between thousands, unlike any character of a text

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// --- Arithmetic on decimal digits ---

std::string without_zeros_in_front(std::string digits) {
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return digits;
}

std::string product(const std::string& a, const std::string& b) {
  std::string digits(a.size() + b.size(), '\0');
  for (size_t i = a.size(); i-- > 0;) {
    int carry = 0;
    for (size_t j = b.size(); j-- > 0;) {
      const int value = digits[i + j + 1] + (a[i] - '0') * (b[j] - '0') + carry;
      digits[i + j + 1] = static_cast<char>(value % 10);
      carry = value / 10;
    }
    digits[i] = static_cast<char>(carry);
  }
  for (char& digit : digits) digit = static_cast<char>(digit + '0');
  return without_zeros_in_front(std::move(digits));
}

std::string sum(const std::string& a, const std::string& b) {
  std::string digits(std::max(a.size(), b.size()) + 1, '0');
  int carry = 0;
  for (size_t place = 0; place < digits.size(); ++place) {
    const auto of = [&](const std::string& x) {
      return place < x.size() ? x[x.size() - 1 - place] - '0' : 0;
    };
    const int value = of(a) + of(b) + carry;
    digits[digits.size() - 1 - place] = static_cast<char>('0' + value % 10);
    carry = value / 10;
  }
  return without_zeros_in_front(std::move(digits));
}

// --- Spelling ---

// Spellings of a sign, and the one that replaces them in a text that is read for its numbers alone.
constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {
    {"\u2212", "-"},    {"\u2010", "-"},       {"\u2011", "-"},       {"\u2012", "-"},
    {"\u2013", "-"},    {"\uFE63", "-"},       {"\uFF0D", "-"},       {"\u00D7", "*"},
    {"\u00B7", "*"},    {"\u22C5", "*"},       {"\u2044", "/"},       {"\u2215", "/"},
    {"\u20AC", "$"},    {"\u00A3", "$"},       {"\u00A5", "$"},       {"\u20B9", "$"},
    {"\u00A0", "\x01"}, {"\u2009", "\x01"},    {"\u202F", "\x01"},    {"\u2007", "\x01"},
    {"\u2019", "'"},    {"{,}", ","},          {"\\,", "\x01"},       {"\\ ", "\x01"},
    {"\\;", "\x01"},    {"\\:", "\x01"},       {"\\!", ""},           {"\\$", "$"},
    {"\\%", "%"},       {"\\left", ""},        {"\\right", ""},       {"\\times", "*"},
    {"\\cdot", "*"},    {"\\dfrac", "\\frac"}, {"\\tfrac", "\\frac"}, {"\\cfrac", "\\frac"},
    {"**", "\""}};

std::string respelled(std::string_view text) {
  std::string plain;
  for (size_t at = 0; at < text.size();) {
    const auto spelling = std::ranges::find_if(
        kSpellings, [&](const auto& each) { return text.substr(at).starts_with(each.first); });
    if (spelling == std::end(kSpellings)) {
      plain += text[at++];
    } else {
      plain += spelling->second;
      at += spelling->first.size();
    }
  }
  return plain;
}

// --- Reading ---

// Reads numbers from the front of a text to its end.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  // The last thing that has digits: a number, or nothing if it is a list, a date or a version.
  std::optional<Number> last() {
    std::optional<Number> found;
    while (at_ < text_.size()) {
      const size_t begin = at_;
      if (std::optional<Number> number = number_here()) {
        if (is_list_behind(begin, at_)) number.reset();
        found = is_exponent_of_unit(begin) ? found : number;
        previous_end_ = at_;
      } else if (at_ == begin) {
        ++at_;
      } else {
        found.reset();  // digits that are no number
        previous_end_ = at_;
      }
    }
    return found;
  }

 private:
  char at(size_t place) const { return place < text_.size() ? text_[place] : '\0'; }
  char before(size_t place) const { return place == 0 ? '\0' : text_[place - 1]; }
  bool begins_at(size_t place, std::string_view what) const { return text_.substr(place).starts_with(what); }
  size_t behind_blanks(size_t place) const {
    while (at(place) == ' ' || at(place) == kGroup) ++place;
    return place;
  }
  size_t behind_digits(size_t place) const {
    while (is_digit(at(place))) ++place;
    return place;
  }

  // Whether a stroke in front of `place`, perhaps with a currency between them, is a sign.
  bool is_negative(size_t place) const {
    while (before(place) == '$' || before(place) == '"') --place;
    size_t stroke = place;
    while (before(stroke) == ' ') --stroke;
    if (before(stroke) != '-') return false;
    const bool apart = stroke != place;
    --stroke;
    while (before(stroke) == '$') --stroke;
    size_t other = stroke;
    while (before(other) == ' ') --other;
    const char in_front = before(other);
    if (apart) return in_front == '=' || in_front == '(' || in_front == '{' || in_front == '[';
    const char next = before(stroke);
    return !is_digit(next) && !is_letter(next) && next != ')' && next != ']' && next != '}' && next != '-' &&
           next != '%';
  }

  // Digits with marks between thousands: 1,234,567. `end` is set behind them. If the marks do not separate
  // thousands, the digits before the first mark.
  std::string grouped_digits(size_t begin, size_t& end) const {
    end = behind_digits(begin);
    std::string digits(text_.substr(begin, end - begin));
    const char mark = at(end);
    const bool marked = mark == ',' || mark == '\'' || mark == '_' || mark == kGroup;
    if (!marked || digits.size() > 3 || digits[0] == '0') return digits;
    std::string all = digits;
    size_t next = end;
    while (at(next) == mark && behind_digits(next + 1) == next + 4) {
      all += text_.substr(next + 1, 3);
      next += 4;
    }
    const bool goes_on = at(next) == mark && is_digit(at(next + 1));
    if (goes_on || next == end) return digits;
    end = next;
    return all;
  }

  // 1,234.50, .5. Nothing and at_ unmoved: there are no digits. Nothing and at_ behind them: no number.
  std::optional<Number> decimal_here() {
    const bool pointed = at(at_) == '.' && is_digit(at(at_ + 1)) && !is_letter(before(at_)) &&
                         !is_digit(before(at_)) && before(at_) != ')';
    if (!is_digit(at(at_)) && !pointed) return std::nullopt;
    Number number;
    size_t end = at_;
    number.numerator = pointed ? "0" : grouped_digits(at_, end);
    if (at(end) == '.' && is_digit(at(end + 1))) {
      const size_t fraction_end = behind_digits(end + 1);
      number.numerator += text_.substr(end + 1, fraction_end - end - 1);
      number.exponent = -static_cast<int64_t>(fraction_end - end - 1);
      end = fraction_end;
    }
    at_ = end;
    if (at(end) == '.' && is_digit(at(end + 1))) return skip_chain('.');  // a version, or a date
    if (number.numerator.size() > kMostDigits) return std::nullopt;
    number.numerator = without_zeros_in_front(std::move(number.numerator));
    return number;
  }

  std::optional<Number> skip_chain(char link) {
    while (at(at_) == link && is_digit(at(at_ + 1))) at_ = behind_digits(at_ + 1);
    return std::nullopt;
  }

  // A whole number with its sign, as exponents have it, perhaps in braces.
  std::optional<int64_t> exponent_at(size_t place, size_t& end) const {
    const bool braced = at(place) == '{';
    if (braced) ++place;
    const bool negative = at(place) == '-';
    if (negative || at(place) == '+') ++place;
    end = behind_digits(place);
    if (end == place) return std::nullopt;
    int64_t value = 0;  // capped above any exponent that is compared
    for (; place < end; ++place) value = std::min(10 * value + (text_[place] - '0'), 2 * kMostExponent);
    if (braced && at(end) != '}') return std::nullopt;
    if (braced) ++end;
    return negative ? -value : value;
  }

  // Applies a power behind a decimal that ends here: e3, * 10^{3}, or ^3.
  void take_power_of_ten(Number& number) {
    size_t end = at_;
    if ((at(at_) == 'e' || at(at_) == 'E') && is_exponent_behind(at_ + 1)) {
      if (const auto power = exponent_at(at_ + 1, end); power && !is_letter(at(end))) {
        number.exponent += *power;
        at_ = end;
      }
      return;
    }
    size_t place = behind_blanks(at_);
    if (at(place) == '*' || at(place) == 'x') {
      place = behind_blanks(place + 1);
      if (!begins_at(place, "10^")) return;
      if (const auto power = exponent_at(place + 3, end)) {
        number.exponent += *power;
        at_ = end;
      }
      return;
    }
    if (at(at_) != '^' || number.denominator != "1") return;
    const auto power = exponent_at(at_ + 1, end);
    if (!power) return;
    is_too_large_ = !raise(number, *power);
    at_ = end;
  }
  bool is_exponent_behind(size_t place) const {
    return is_digit(at(place)) || ((at(place) == '-' || at(place) == '+') && is_digit(at(place + 1)));
  }
  // False if the result has more digits than are compared.
  static bool raise(Number& number, int64_t power) {
    constexpr int64_t kMostPower = 10'000;
    const bool inverse = power < 0;
    if (inverse) power = -power;
    if (power > kMostPower) return false;
    Number raised{.numerator = "1", .exponent = number.exponent * power};
    if (number.numerator == "10") {
      raised.exponent += power;
    } else {
      for (; power > 0 && raised.numerator.size() <= kMostDigits; --power)
        raised.numerator = product(raised.numerator, number.numerator);
      if (power > 0) return false;
    }
    if (inverse) {
      if (raised.numerator == "0") return false;
      std::swap(raised.numerator, raised.denominator);
      raised.exponent = -raised.exponent;
    }
    number = raised;
    return true;
  }

  // \frac{4}{8}, \frac12.
  std::optional<Number> latex_fraction_here() {
    constexpr std::string_view kFraction = "\\frac";
    if (!begins_at(at_, kFraction)) return std::nullopt;
    const size_t begin = at_;
    at_ += kFraction.size();
    const std::optional<Number> above = part_of_fraction();
    const std::optional<Number> below = part_of_fraction();
    if (above && below) return quotient(*above, *below);
    at_ = begin + kFraction.size();
    return std::nullopt;
  }
  std::optional<Number> part_of_fraction() {
    at_ = behind_blanks(at_);
    if (is_digit(at(at_))) return Number{.numerator = std::string(1, at(at_++))};
    if (at(at_) != '{') return std::nullopt;
    const size_t end = text_.find('}', at_);
    if (end == text_.npos) return std::nullopt;
    Reader inner(text_.substr(at_ + 1, end - at_ - 1));
    inner.at_ = inner.behind_blanks(0);
    const bool negative = inner.at(inner.at_) == '-';
    if (negative) ++inner.at_;
    std::optional<Number> number = inner.decimal_here();
    if (!number || inner.behind_blanks(inner.at_) != inner.text_.size()) return std::nullopt;
    number->negative = negative;
    at_ = end + 1;
    return number;
  }
  static std::optional<Number> quotient(const Number& above, const Number& below) {
    if (below.numerator == "0") return std::nullopt;
    return Number{.negative = above.negative != below.negative,
                  .numerator = product(above.numerator, below.denominator),
                  .exponent = above.exponent - below.exponent,
                  .denominator = product(above.denominator, below.numerator)};
  }

  // A whole number and a fraction behind it.
  static Number mixed(const Number& whole, const Number& part) {
    return {.negative = whole.negative,
            .numerator = sum(product(whole.numerator, part.denominator), part.numerator),
            .exponent = 0,
            .denominator = part.denominator};
  }
  static bool is_whole(const Number& number) { return number.exponent == 0 && number.denominator == "1"; }

  // /8 behind a number; nothing if a second stroke makes it a date.
  std::optional<Number> with_fraction(const Number& above) {
    if (at(at_) != '/' || !is_digit(at(at_ + 1))) return above;
    ++at_;
    const std::optional<Number> below = decimal_here();
    if (!below) return std::nullopt;
    if (at(at_) == '/' && is_digit(at(at_ + 1))) return skip_chain('/');
    return quotient(above, *below);
  }

  std::optional<Number> number_here() {
    const bool negative = is_negative(at_);
    std::optional<Number> number = latex_fraction_here();
    if (!number) {
      number = decimal_here();
      if (!number) return std::nullopt;
      const bool plain = is_whole(*number);
      is_too_large_ = false;
      take_power_of_ten(*number);
      if (is_too_large_ || std::max(number->exponent, -number->exponent) > kMostExponent) return std::nullopt;
      number = with_fraction(*number);
      if (number && plain && is_whole(*number)) number = with_part_behind(*number);
    }
    if (number && negative) number->negative = !number->negative;
    return number;
  }

  // 1 1/2, 1\frac12.
  std::optional<Number> with_part_behind(const Number& whole) {
    const size_t begin = at_;
    const bool apart = at(at_) == ' ' || at(at_) == kGroup;
    at_ = behind_blanks(at_);
    std::optional<Number> part = latex_fraction_here();
    if (!part && apart && is_digit(at(at_))) {
      const std::optional<Number> above = decimal_here();
      if (above && is_whole(*above) && at(at_) == '/' && is_digit(at(at_ + 1))) part = with_fraction(*above);
    }
    const bool proper = part && part->exponent == 0 && !part->negative &&
                        std::pair(part->numerator.size(), part->numerator) <
                            std::pair(part->denominator.size(), part->denominator);
    if (proper) return mixed(whole, *part);
    at_ = begin;
    return whole;
  }

  // Whether commas join [begin, end) to a number in front of it, as in a list or a pair.
  bool is_list_behind(size_t begin, size_t end) const {
    size_t place = begin;
    while (before(place) == '-' || before(place) == '$' || before(place) == '+') --place;
    const bool joined = before(place) == ',' && place - 1 == previous_end_ && previous_end_ > 0;
    if (joined) return true;
    while (before(place) == ' ' || before(place) == kGroup) --place;
    const bool behind_comma = before(place) == ',' && place - 1 == previous_end_ && previous_end_ > 0;
    const char closing = at(behind_blanks(end));
    return behind_comma && (closing == ')' || closing == ']' || closing == '}') && is_bracketed(place - 1);
  }
  // Whether nothing but numbers stands between an opening bracket and `place`.
  bool is_bracketed(size_t place) const {
    constexpr std::string_view kOfNumbers = "0123456789., -+$/\x01";
    while (place > 0 && kOfNumbers.find(text_[place - 1]) != kOfNumbers.npos) --place;
    return before(place) == '(' || before(place) == '[' || before(place) == '{';
  }

  // m^2, x^{3}, cm3.
  bool is_exponent_of_unit(size_t begin) const {
    size_t place = begin;
    if (before(place) == '-') --place;
    if (before(place) == '{') --place;
    if (before(place) == '^') return true;
    constexpr std::string_view kUnits[] = {"mm", "cm", "dm", "km", "m", "in", "ft", "yd", "mi", "s"};
    if (at_ != begin + 1 || (text_[begin] != '2' && text_[begin] != '3') || is_letter(at(at_))) return false;
    size_t word = begin;
    while (is_letter(before(word))) --word;
    return std::ranges::find(kUnits, text_.substr(word, begin - word)) != std::end(kUnits);
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t previous_end_ = 0;  // the end of the number in front
  bool is_too_large_ = false;
};

// a's numerator times b's denominator, as digits without zeros at their end and a power of ten.
std::pair<std::string, int64_t> cross(const Number& a, const Number& b) {
  std::string digits = product(a.numerator, b.denominator);
  int64_t exponent = a.exponent;
  const size_t last = digits.find_last_not_of('0');
  if (last == digits.npos) return {"0", 0};
  exponent += static_cast<int64_t>(digits.size() - 1 - last);
  digits.resize(last + 1);
  return {digits, exponent};
}

}  // namespace

bool operator==(const Number& a, const Number& b) {
  const auto left = cross(a, b), right = cross(b, a);
  return left == right && (a.negative == b.negative || left.first == "0");
}

std::optional<Number> last_number(std::string_view text) {
  // Answers stand at the end. Numbers that begin before the last kMostBytes are not found.
  constexpr size_t kMostBytes = size_t{1} << 16;
  const std::string plain = respelled(text.substr(text.size() - std::min(text.size(), kMostBytes)));
  return Reader(plain).last();
}

}  // namespace sluice::rl
