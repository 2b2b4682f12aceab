// Text forms of schemes, written and read.
#include <algorithm>

#include "base/text.h"
#include "strategy/readable.h"
#include "strategy/scheme.h"
#include "strategy/text_cursor.h"

namespace sluice::strategy {

std::string to_text(const Scheme& scheme) {
  const std::string share = scheme.fsdp == 1 ? "" : base::text(",", scheme.fsdp);
  const std::string experts = scheme.ep == 1 ? "" : base::text(",", scheme.ep);
  return base::text("<", scheme.tp, ",", scheme.pp, ",", scheme.cp, share, experts, ">");
}

namespace {

struct Degree {
  const char* word;
  int Scheme::*value;
};
// The degrees in the order in which they are written.
constexpr Degree kDegrees[] = {{"tp", &Scheme::tp},
                               {"pp", &Scheme::pp},
                               {"cp", &Scheme::cp},
                               {"fsdp", &Scheme::fsdp},
                               {"ep", &Scheme::ep}};

// "tp2,cp8": degrees by name, in any order, the others 1.
Scheme parse_named(TextCursor& cursor) {
  Scheme scheme;
  std::vector<std::string> seen;
  while (true) {
    const std::string word = cursor.word();
    const auto* const degree =
        std::ranges::find_if(kDegrees, [&](const Degree& each) { return word == each.word; });
    if (degree == std::end(kDegrees))
      cursor.fail(base::text("'", word, "' is no degree: a scheme is written as tp2,pp2,cp8,fsdp8,ep4"));
    if (std::ranges::count(seen, word) > 0)
      cursor.fail(base::text(word, " stands there twice: give it once"));
    seen.push_back(word);
    scheme.*degree->value = cursor.positive_integer(word);
    if (!cursor.next_is(',')) return scheme;
    cursor.expect(',');
  }
}

// "<2,1,8>": TP, PP, CP and, above 1, FSDP and EP.
Scheme parse_numbers(TextCursor& cursor) {
  Scheme scheme;
  cursor.expect('<');
  scheme.tp = cursor.positive_integer("tp");
  cursor.expect(',');
  scheme.pp = cursor.positive_integer("pp");
  cursor.expect(',');
  scheme.cp = cursor.positive_integer("cp");
  if (cursor.next_is(',')) {
    cursor.expect(',');
    scheme.fsdp = cursor.positive_integer("fsdp");
  }
  if (cursor.next_is(',')) {
    cursor.expect(',');
    scheme.ep = cursor.positive_integer("ep");
  }
  cursor.expect('>');
  return scheme;
}

}  // namespace

std::string readable(const Scheme& scheme) {
  std::vector<std::string> degrees;
  for (const Degree& degree : kDegrees) {
    if (scheme.*degree.value != 1) degrees.push_back(base::text(degree.word, scheme.*degree.value));
  }
  return degrees.empty() ? "tp1" : base::join(degrees, ",");
}

Scheme parse_scheme(TextCursor& cursor) {
  const Scheme scheme = cursor.next_is_letter() ? parse_named(cursor) : parse_numbers(cursor);
  const int64_t stage_ranks = int64_t{scheme.tp} * scheme.pp;
  if (stage_ranks > kMaxRanks || stage_ranks * scheme.cp > kMaxRanks) {
    cursor.fail(base::text(to_text(scheme), " has more than ", kMaxRanks, " ranks: lower a degree"));
  }
  if (const std::string fault = fsdp_fault(scheme); !fault.empty()) cursor.fail(fault);
  return scheme;
}

Scheme parse_scheme(std::string_view text) {
  TextCursor cursor(text, "scheme");
  const Scheme scheme = parse_scheme(cursor);
  if (!cursor.at_end()) cursor.fail("there is more text behind it: remove that");
  return scheme;
}

}  // namespace sluice::strategy
