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

std::string fsdp_fault(const Scheme& scheme) {
  if (scheme.cp % scheme.fsdp != 0) {
    return base::text("fsdp ", scheme.fsdp, " does not divide cp ", scheme.cp,
                      ", so its lanes make no whole FSDP groups: ", divisors_text(scheme.cp));
  }
  if (scheme.fsdp % scheme.ep != 0) {
    return base::text("ep ", scheme.ep, " does not divide fsdp ", scheme.fsdp,
                      ", so its FSDP groups make no whole expert groups: ", divisors_text(scheme.fsdp));
  }
  return "";
}

}  // namespace sluice::strategy
