#include "strategy/scheme.h"

#include <algorithm>

#include "base/choices.h"
#include "base/text.h"

namespace sluice::strategy {

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

}  // namespace sluice::strategy
