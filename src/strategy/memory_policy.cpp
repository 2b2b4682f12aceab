#include "strategy/memory_policy.h"

#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace sluice::strategy {

std::string to_text(const MemoryPolicy& policy) {
  std::vector<std::string> savings;
  if (policy.recompute) savings.emplace_back("recompute");
  if (policy.visits_again) savings.emplace_back("visits again");
  if (policy.offload_permille > 0)
    savings.push_back(base::text("offload ", static_cast<double>(policy.offload_permille) / 1000));
  return savings.empty() ? "keep" : base::join(savings, ", ");
}

void validate(const MemoryPolicy& policy) {
  if (policy.offload_permille >= 0 && policy.offload_permille <= 1000) return;
  throw base::InputError(
      base::text("offload_permille is ", policy.offload_permille, ": give thousandths from 0 to 1000"));
}

}  // namespace sluice::strategy
