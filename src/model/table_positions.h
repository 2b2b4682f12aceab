// The number of positions in tables over positions.
#pragma once

#include <cstdint>

#include "model/model.h"

namespace sluice::model {

// The number of positions that sequences of up to `longest` tokens need. The context may be far longer:
// tables of 10 million positions for sequences of a thousand tokens took 2 GB. rope_table() gives the same
// frequencies for this number as for the context.
int64_t table_positions(const Model& model, int64_t context_length, int64_t longest);

}  // namespace sluice::model
