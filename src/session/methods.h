// Who plans and proposes, by the name that configurations and commands give.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "plan/planner.h"

namespace sluice::session {

using MethodPtr = std::shared_ptr<const plan::Method>;

// Offers one beside "ours": programs that compare do, before they name any; `make` takes a seed. What does
// not propose plans batches with strategies that are given.
void offer_method(const std::string& name, std::function<MethodPtr(uint64_t seed)> make, bool proposes);

// InputError listing those that there are.
MethodPtr method_named(const std::string& name, uint64_t seed);
// The same, of those that propose.
MethodPtr proposing_method_named(const std::string& name, uint64_t seed);

}  // namespace sluice::session
