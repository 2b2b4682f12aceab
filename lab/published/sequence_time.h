// T(l, P) of Hydraulis: how long a sequence keeps the slowest stage busy, by the published system's rules.
#pragma once

#include <cstdint>

#include "published/greedy_dispatch.h"

namespace sluice::published {

// Rules for a micro-batch's constant c in estimates. kPrinted: T(l, P) contains it (appendix C.2), so
// each sequence pays one, in dispatch and packing alike. kReleased: as in its released program, dispatch
// leaves it out and packing adds one per micro-batch. The proposal counts it once per sequence under both
// rules.
enum class ConstantRule { kPrinted, kReleased };

// T(l, P) under each of the rules; lanes divide it.
inline int64_t printed_ns(const plan::SchemeCost& scheme, int64_t length) {
  return scheme.micro_batch_work_ns(scheme.work_of(length), 1) / scheme.scheme().cp;
}
inline int64_t released_ns(const plan::SchemeCost& scheme, int64_t length) {
  return printed_ns(scheme, length) - scheme.micro_batch_ns() / scheme.scheme().cp;
}
inline SequenceTime sequence_time(ConstantRule rule) {
  return rule == ConstantRule::kPrinted ? printed_ns : released_ns;
}

}  // namespace sluice::published
