// Alarms in words, with what speaks for a cause.
#pragma once

#include <cstdint>
#include <string>

#include "watch/detector.h"
#include "watch/figures.h"

namespace sluice::watch {

// How long a step takes by the clock with all ranks' paces as they are, and were a rank like the others; 0:
// not asked.
struct Cost {
  int64_t step_ns = 0;
  int64_t without_ns = 0;
};

// "rank 5 is slow: …, which wait for it; …: look at …". `figures`: the step's.
std::string to_text(const Detector::Change& change, const Figures& figures, const Cost& cost = {});
// What of the rank's figures is unlike the others': "its process kept 0.68 processors busy, the others'
// 0.99"; empty: nothing.
std::string evidence(const Figures& figures, size_t rank);

}  // namespace sluice::watch
