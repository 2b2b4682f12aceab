// Numbers in texts, as a reader takes them.
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

// Whether they have the same value.
bool operator==(const Number& a, const Number& b);

// The last number that a text says; nothing where it says none, or the last is a list (1,2), an interval
// [0, 1), a date or a version rather than a number.
//   signs         -7, −7, -$7, $-7; in 3-12 and x-5 the stroke is none
//   thousands     1,234 and 1'234, in groups of three, and LaTeX's 9{,}500, 9\,500 and 9\ 500
//   decimals      .5, 1234.50
//   powers of ten 1.5e3, 1.5 \times 10^{3}, 10^3
//   fractions     4/8, 1 1/2, \frac{4}{8}, 1\frac12
// Units behind it, m^2 and cm3 among them, are passed over.
std::optional<Number> last_number(std::string_view text);

}  // namespace sluice::rl
