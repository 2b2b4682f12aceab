// Reads the small language of schemes and strategies, token by token, and words its errors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::strategy {

// The most ranks that a text may ask for; products of degrees below it stay far from overflow.
inline constexpr int64_t kMaxRanks = 1 << 20;

// A position in a text; white space before each token is skipped. The text must outlive the cursor.
class TextCursor {
 public:
  // `kind` names the text in errors: "strategy 'TEXT': …".
  TextCursor(std::string_view text, std::string kind) : text_(text), kind_(std::move(kind)) {}

  bool at_end();
  bool next_is(char token);
  bool next_is_digit();
  bool next_is_letter();

  // Consumes `token`, or fails.
  void expect(char token);
  // Consumes and returns the letters that come next, in lower case; "" if there are none.
  std::string word();
  // Consumes an integer in [1, kMaxRanks], or fails with an error that calls the integer `what`.
  int positive_integer(const std::string& what);

  // InputError with the whole text in front of `fault`.
  [[noreturn]] void fail(const std::string& fault) const;

 private:
  void skip_space();

  std::string_view text_;
  std::string kind_;
  size_t position_ = 0;
};

}  // namespace sluice::strategy
