// A route as stable text for golden tests and people, one line for each transfer.
#pragma once

#include <string>

#include "link/route.h"

namespace sluice::link {

// "round 0: buckets 0 1" / "  inter 0 -> 2  bucket 1 [0, 8)" / "  intra 2 = 2  bucket 1 [0, 8)" (a local
// move).
std::string to_text(const Route& route);

}  // namespace sluice::link
