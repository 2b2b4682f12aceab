#include "strategy/scheme.h"

#include <algorithm>

#include "base/choices.h"
#include "base/error.h"
#include "base/text.h"
#include "strategy/text_cursor.h"

namespace sluice::strategy {

std::string to_text(const Scheme& scheme) {
  const std::string share = scheme.share == 1 ? "" : base::text(",", scheme.share);
  return base::text("<", scheme.tp, ",", scheme.pp, ",", scheme.cp, share, ">");
}

std::string share_fault(const Scheme& scheme) {
  std::vector<std::string> divisors;
  for (int share = 1; share <= std::min(scheme.cp, 64); ++share) {
    if (scheme.cp % share == 0) divisors.push_back(base::text(share));
  }
  return base::text("share ", scheme.share, " does not divide cp ", scheme.cp,
                    ", so its lanes make no whole share groups: ", base::choices_text(divisors));
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
  cursor.expect('>');
  const int64_t stage_ranks = int64_t{scheme.tp} * scheme.pp;
  if (stage_ranks > kMaxRanks || stage_ranks * scheme.cp > kMaxRanks) {
    cursor.fail(base::text(to_text(scheme), " has more than ", kMaxRanks, " ranks: lower a degree"));
  }
  if (scheme.cp % scheme.share != 0) cursor.fail(share_fault(scheme));
  return scheme;
}

Scheme parse_scheme(std::string_view text) {
  TextCursor cursor(text, "scheme");
  const Scheme scheme = parse_scheme(cursor);
  if (!cursor.at_end()) cursor.fail("there is more text after '>': remove it");
  return scheme;
}

}  // namespace sluice::strategy
