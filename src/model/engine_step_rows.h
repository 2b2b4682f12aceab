// How lanes that say texts together cut a pass's rows.
#pragma once

#include <cstdint>

namespace sluice::model {

// Each has a part of them where that is so many at least. Fewer take as long as one does, for matrices are
// read all the same: then every lane computes all, and nothing is gathered. So it is where layers hand states
// from row to row.
inline bool splits_engine_step(int64_t rows, int64_t lanes, bool has_states) {
  constexpr int64_t kFewestOfLane = 8;
  return !has_states && rows >= kFewestOfLane * lanes;
}

}  // namespace sluice::model
