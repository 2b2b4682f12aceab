// How lanes that generate text together divide the rows of an engine step.
#pragma once

#include <cstdint>

namespace sluice::model {

// Lanes divide rows only if each gets at least kFewestOfLane. Fewer rows take as long as one, because
// matrices are read anyway: then every lane computes all rows and nothing is gathered. The same holds if
// layers hand states from row to row.
inline bool splits_engine_step(int64_t rows, int64_t lanes, bool has_states) {
  constexpr int64_t kFewestOfLane = 8;
  return !has_states && rows >= kFewestOfLane * lanes;
}

}  // namespace sluice::model
