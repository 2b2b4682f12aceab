#include "strategy/scheme.h"

#include <algorithm>

#include "base/choices.h"
#include "base/error.h"
#include "base/text.h"
#include "strategy/text_cursor.h"

namespace sluice::strategy {

std::string to_text(const Scheme& scheme) {
  const std::string share = scheme.share == 1 ? "" : base::text(",", scheme.share);
  const std::string experts = scheme.experts == 1 ? "" : base::text(",", scheme.experts);
  return base::text("<", scheme.tp, ",", scheme.pp, ",", scheme.cp, share, experts, ">");
}

namespace {

std::string divisors_text(int degree) {
  std::vector<std::string> divisors;
  for (int divisor = 1; divisor <= std::min(degree, 64); ++divisor) {
    if (degree % divisor == 0) divisors.push_back(base::text(divisor));
  }
  return base::choices_text(divisors);
}

}  // namespace

std::string share_fault(const Scheme& scheme) {
  if (scheme.cp % scheme.share != 0) {
    return base::text("share ", scheme.share, " does not divide cp ", scheme.cp,
                      ", so its lanes make no whole share groups: ", divisors_text(scheme.cp));
  }
  if (scheme.share % scheme.experts != 0) {
    return base::text("experts ", scheme.experts, " does not divide share ", scheme.share,
                      ", so its share groups make no whole expert groups: ", divisors_text(scheme.share));
  }
  return "";
}

Scheme parse_scheme(TextCursor& cursor) {
  Scheme scheme;
  cursor.expect('<');
  scheme.tp = cursor.positive_integer("tp");
  cursor.expect(',');
  scheme.pp = cursor.positive_integer("pp");
  cursor.expect(',');
  scheme.cp = cursor.positive_integer("cp");
  if (cursor.next_is(',')) {
    cursor.expect(',');
    scheme.share = cursor.positive_integer("share");
  }
  if (cursor.next_is(',')) {
    cursor.expect(',');
    scheme.experts = cursor.positive_integer("experts");
  }
  cursor.expect('>');
  const int64_t stage_ranks = int64_t{scheme.tp} * scheme.pp;
  if (stage_ranks > kMaxRanks || stage_ranks * scheme.cp > kMaxRanks) {
    cursor.fail(base::text(to_text(scheme), " has more than ", kMaxRanks, " ranks: lower a degree"));
  }
  if (const std::string fault = share_fault(scheme); !fault.empty()) cursor.fail(fault);
  return scheme;
}

Scheme parse_scheme(std::string_view text) {
  TextCursor cursor(text, "scheme");
  const Scheme scheme = parse_scheme(cursor);
  if (!cursor.at_end()) cursor.fail("there is more text after '>': remove it");
  return scheme;
}

}  // namespace sluice::strategy
