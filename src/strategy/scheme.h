// A scheme says how one pipeline is laid out: <TP, PP, CP, S, E>.
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
  // Neighbouring lanes that hold one copy of their stages' parameters between them, a share group; divides
  // cp. 1: each lane holds its own.
  int fsdp = 1;
  // Neighbouring lanes that divide each layer's experts between them, an expert group, in which rows travel
  // to the experts that they visit; divides share. 1: each lane gathers all experts.
  int ep = 1;

  int ranks() const { return tp * pp * cp; }
  // The share group of a lane begins here.
  int first_of_fsdp_group(int lane) const { return lane / fsdp * fsdp; }
  // The expert group of a lane begins here; lanes of a share group that have the same place in theirs have
  // the same experts.
  int first_of_ep_group(int lane) const { return lane / ep * ep; }
  int expert_fsdp() const { return fsdp / ep; }
  auto operator<=>(const Scheme&) const = default;
};

// "<4,2,1>"; with a share above 1 "<4,2,8,4>", with experts above 1
// "<4,2,8,4,2>".
std::string to_text(const Scheme& scheme);

// The reverse; white space is ignored. InputError naming the text otherwise, when a degree is < 1, when the
// share does not divide cp or experts the share, or when the ranks exceed 2^20.
Scheme parse_scheme(std::string_view text);

// The same at a cursor that stands before '<' of a longer text.
class TextCursor;
Scheme parse_scheme(TextCursor& cursor);

// What is wrong with a share that does not divide cp, or with experts that do not divide the share, and which
// do; "" where nothing is.
std::string fsdp_fault(const Scheme& scheme);

}  // namespace sluice::strategy
