#include "plan/proposal.h"

#include <algorithm>

namespace sluice::plan {

void LongestRange::add(int64_t tokens) {
  least = most == 0 ? tokens : std::min(least, tokens);
  most = std::max(most, tokens);
}

std::vector<strategy::Strategy> strategies_of(const std::vector<Proposal>& proposals) {
  std::vector<strategy::Strategy> strategies;
  for (const Proposal& proposal : proposals) strategies.push_back(proposal.strategy);
  return strategies;
}

}  // namespace sluice::plan
