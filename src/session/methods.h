// Methods of planning and proposing, by the names in configurations and commands.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "plan/planner.h"

namespace sluice::session {

using MethodPtr = std::shared_ptr<const plan::Method>;

// Offers a method beside "ours"; programs that compare methods do so before they name any. `make` takes a
// seed. A method without `proposes` only plans batches with given strategies.
void offer_method(const std::string& name, std::function<MethodPtr(uint64_t seed)> make, bool proposes);

// InputError listing the offered methods.
MethodPtr method_named(const std::string& name, uint64_t seed);
// As method_named(), among the methods that propose.
MethodPtr proposing_method_named(const std::string& name, uint64_t seed);

}  // namespace sluice::session
