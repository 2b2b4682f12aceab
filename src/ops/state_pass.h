// How states go from chunk to chunk of a recurrence (ops/recurrence.h), forward or backward: what is left to
// be done one chunk after the other, once all that lies within chunks is made.
//
// Names as there: B = N·H, of chunk n and head h the one at n·H + h; S = P·H likewise of pieces in the order
// of their chunks; X columns.
#pragma once

#include "ops/state_pass_input.h"

namespace sluice::ops {

void pass_states(const StatePass& pass);

// The same by ATen's operators, on any device: what pass_states() is tested against.
namespace aten {
void pass_states(const StatePass& pass);
}

}  // namespace sluice::ops
