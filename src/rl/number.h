// Reads numbers in texts as a person would.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::rl {

// numerator * 10^exponent / denominator, exactly, whatever their lengths.
struct Number {
  bool negative = false;
  std::string numerator = "0";  // decimal digits
  int64_t exponent = 0;
  std::string denominator = "1";  // likewise, not zero
};

// Whether `a` and `b` have the same value.
bool operator==(const Number& a, const Number& b);

// The last number in a text; nothing if there is none, or if the last is a list (1,2), an interval [0, 1), a
// date or a version.
//   signs         -7, −7, -$7, $-7; the strokes in 3-12 and x-5 are not
//   thousands     1,234 and 1'234, in groups of three, and LaTeX's 9{,}500, 9\,500 and 9\ 500
//   decimals      .5, 1234.50
//   powers of ten 1.5e3, 1.5 \times 10^{3}, 10^3
//   fractions     4/8, 1 1/2, \frac{4}{8}, 1\frac12
// Units after a number, m^2 and cm3 among them, are skipped.
std::optional<Number> last_number(std::string_view text);

}  // namespace sluice::rl
