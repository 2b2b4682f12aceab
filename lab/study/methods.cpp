#include "study/methods.h"

#include "exact/exact.h"
#include "published/paper_plan.h"
#include "session/methods.h"

namespace sluice::study {

void offer_methods() {
  session::offer_method(
      strategy::MethodName::kPaper,
      [](uint64_t seed) { return published::paper({.dispatch = {.seed = seed}}); }, true);
  session::offer_method(
      strategy::MethodName::kExact, [](uint64_t) { return exact::method(); }, false);
}

}  // namespace sluice::study
