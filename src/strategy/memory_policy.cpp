#include "strategy/memory_policy.h"

#include "base/error.h"
#include "base/text.h"

namespace sluice::strategy {

std::string to_text(const MemoryPolicy& policy) {
  if (policy.keeps_all()) return "keep";
  if (policy.offload_permille == 0) return "recompute";
  const std::string offload = base::text("offload ", static_cast<double>(policy.offload_permille) / 1000);
  return policy.recompute ? "recompute, " + offload : offload;
}

void validate(const MemoryPolicy& policy) {
  if (policy.offload_permille >= 0 && policy.offload_permille <= 1000) return;
  throw base::InputError(
      base::text("offload_permille is ", policy.offload_permille, ": give thousandths from 0 to 1000"));
}

}  // namespace sluice::strategy
