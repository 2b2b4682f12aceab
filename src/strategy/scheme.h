// A scheme says how one pipeline is laid out: <TP, PP, CP, S>.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::strategy {

struct Scheme {
  int tp = 1;  // tensor-parallel ranks, with sequence parallelism
  int pp = 1;  // pipeline stages
  int cp = 1;  // lanes
  // Neighbouring lanes that hold one copy of their stages' parameters between them; divides cp. What 1 means,
  // that each lane holds its own, is all that runs yet.
  int share = 1;

  int ranks() const { return tp * pp * cp; }
  auto operator<=>(const Scheme&) const = default;
};

// "<4,2,1>"; with a share above 1 "<4,2,8,4>".
std::string to_text(const Scheme& scheme);

// The reverse; white space is ignored. InputError naming the text otherwise, when a degree is < 1, when the
// share does not divide cp, or when the ranks exceed 2^20.
Scheme parse_scheme(std::string_view text);

// The same at a cursor that stands before '<' of a longer text.
class TextCursor;
Scheme parse_scheme(TextCursor& cursor);

}  // namespace sluice::strategy
