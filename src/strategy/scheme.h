// A scheme is the layout of one pipeline: <TP, PP, CP, FSDP, EP>.
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
  // FSDP degree: the size of a share group, neighbouring lanes that together hold one copy of their stages'
  // parameters. It divides cp. 1: each lane holds its own copy.
  int fsdp = 1;
  // EP degree: the size of an expert group, neighbouring lanes that divide each layer's experts; rows travel
  // to the lanes of their experts. It divides fsdp. 1: each lane gathers all experts.
  int ep = 1;

  int ranks() const { return tp * pp * cp; }
  // The first lane of a lane's share group.
  int first_of_fsdp_group(int lane) const { return lane / fsdp * fsdp; }
  // The first lane of a lane's expert group. Lanes of a share group that have the same position in their
  // expert groups have the same experts.
  int first_of_ep_group(int lane) const { return lane / ep * ep; }
  int expert_fsdp() const { return fsdp / ep; }
  auto operator<=>(const Scheme&) const = default;
};

// "<4,2,1>"; with an FSDP degree above 1 "<4,2,8,4>", with an EP degree above 1
// "<4,2,8,4,2>".
std::string to_text(const Scheme& scheme);

// Parses both forms, "<4,2,1>" and "tp4,pp2"; white space is ignored. InputError naming the text if a degree
// is < 1, if fsdp does not divide cp or ep does not divide fsdp, or if the ranks exceed 2^20.
Scheme parse_scheme(std::string_view text);

// The same at a cursor that stands before '<' or a degree's name in a longer text.
class TextCursor;
Scheme parse_scheme(TextCursor& cursor);

// Says in words that the FSDP degree does not divide cp, or the EP degree not the FSDP degree, and lists the
// degrees that do; "" if both divide.
std::string fsdp_fault(const Scheme& scheme);

}  // namespace sluice::strategy
