// Methods of planning and proposing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "plan/planner.h"
#include "strategy/planning_words.h"

namespace sluice::session {

using MethodPtr = std::shared_ptr<const plan::Method>;
using strategy::MethodName;

// Offers a method beside ours; programs that compare methods do so before they name any. `make` takes a seed.
// A method without `proposes` only plans batches with given strategies.
void offer_method(MethodName name, std::function<MethodPtr(uint64_t seed)> make, bool proposes);

// InputError listing the offered methods, for all of these.
MethodName parse_method(const std::string& text);
MethodPtr method_named(MethodName name, uint64_t seed);
// The same also if the method does not propose, listing those that do.
void check_proposes(MethodName name);

}  // namespace sluice::session
