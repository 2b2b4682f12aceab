#include "strategy/memory_policy.h"

#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace sluice::strategy {

namespace {

std::string share_text(int permille) {
  return base::text(static_cast<double>(permille) / MemoryPolicy::kAll);
}

void validate_share(const char* name, int permille) {
  if (permille >= 0 && permille <= MemoryPolicy::kAll) return;
  throw base::InputError(base::text(name, " is ", permille, ": give thousandths from 0 to 1000"));
}

}  // namespace

std::string to_text(const MemoryPolicy& policy) {
  std::vector<std::string> savings;
  if (policy.recomputes_some()) {
    savings.push_back("recompute " + share_text(policy.recompute_permille));
  } else if (policy.recomputes()) {
    savings.emplace_back("recompute");
  }
  if (policy.recompute_dispatch) savings.emplace_back("dispatch again");
  if (policy.offload_permille > 0) savings.push_back("offload " + share_text(policy.offload_permille));
  return savings.empty() ? "keep" : base::join(savings, ", ");
}

void validate(const MemoryPolicy& policy) {
  validate_share("recompute_permille", policy.recompute_permille);
  validate_share("offload_permille", policy.offload_permille);
}

}  // namespace sluice::strategy
