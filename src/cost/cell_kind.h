// The kinds of cells.
#pragma once

#include <cstdint>

namespace sluice::cost {

// The work of a cell on a micro-batch at one stage. kBackward is input and weight gradient in one.
enum class CellKind : uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };

}  // namespace sluice::cost
