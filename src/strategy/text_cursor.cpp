#include "strategy/text_cursor.h"

#include "base/error.h"
#include "base/text.h"

namespace sluice::strategy {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_letter(char c) { return lower(c) >= 'a' && lower(c) <= 'z'; }

constexpr const char* kExample = "; write for example tp4,pp2 + 2x cp2, or 1x<4,2,1> + 2x<1,1,2>";

}  // namespace

void TextCursor::skip_space() {
  while (position_ < text_.size() && is_space(text_[position_])) ++position_;
}

bool TextCursor::at_end() {
  skip_space();
  return position_ == text_.size();
}

bool TextCursor::next_is(char token) { return !at_end() && text_[position_] == token; }

bool TextCursor::next_is_digit() { return !at_end() && is_digit(text_[position_]); }

bool TextCursor::next_is_letter() { return !at_end() && is_letter(text_[position_]); }

std::string TextCursor::word() {
  std::string word;
  for (skip_space(); position_ < text_.size() && is_letter(text_[position_]); ++position_)
    word += lower(text_[position_]);
  return word;
}

void TextCursor::expect(char token) {
  if (at_end()) fail(base::text("'", token, "' is missing at the end", kExample));
  if (!next_is(token)) fail(base::text("expected '", token, "' at character ", position_ + 1, kExample));
  ++position_;
}

int TextCursor::positive_integer(const std::string& what) {
  if (!next_is_digit())
    fail(base::text(what, " must be a positive integer, at character ", position_ + 1, kExample));
  int64_t value = 0;
  for (; position_ < text_.size() && is_digit(text_[position_]); ++position_) {
    value = value * 10 + (text_[position_] - '0');
    if (value > kMaxRanks) fail(base::text(what, " is above ", kMaxRanks, ": give a smaller one"));
  }
  if (value < 1) fail(base::text(what, " is 0: give 1 or more"));
  return static_cast<int>(value);
}

void TextCursor::fail(const std::string& fault) const {
  throw base::InputError(base::text(kind_, " '", text_, "': ", fault));
}

}  // namespace sluice::strategy
