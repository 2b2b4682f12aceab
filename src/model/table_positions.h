// How far tables over positions reach.
#pragma once

#include <cstdint>

#include "model/shape.h"

namespace sluice::model {

// So many that sequences of up to `longest` tokens need of a context that may be far longer: tables of 10
// million positions for sequences of a thousand took 2 GB. rope_table() gives for them what it gives for the
// context.
int64_t table_positions(const Shape& shape, int64_t context_length, int64_t longest);

}  // namespace sluice::model
