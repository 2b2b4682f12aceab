// Passes states from chunk to chunk of a recurrence (ops/recurrence.h), forward or backward: the sequential
// part, which remains after all work within chunks.
//
// Names as there: B = N·H, chunk n and head h have index n·H + h; S = P·H likewise, with pieces in the order
// of their chunks; X columns.
#pragma once

#include "ops/state_pass_input.h"

namespace sluice::ops {

void pass_states(const StatePass& pass);

// The same by ATen's operators, on any device: the reference in tests of pass_states().
namespace aten {
void pass_states(const StatePass& pass);
}

}  // namespace sluice::ops
