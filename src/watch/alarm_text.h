// Alarms as text, with measurements that point to a cause.
#pragma once

#include <cstdint>
#include <string>

#include "watch/detector.h"
#include "watch/figures.h"

namespace sluice::watch {

// Predicted duration of a step with all ranks' slowdowns, and without the rank's own slowdown; 0: not
// computed.
struct Cost {
  int64_t step_ns = 0;
  int64_t without_ns = 0;
};

// "rank 5 is slow: …, which wait for it; …: look at …". `figures` are those of the step.
std::string to_text(const Detector::Change& change, const Figures& figures, const Cost& cost = {});
// Lists the rank's figures that differ from the others', with both values: "its GPU's temperature is 88.00,
// the others' 71.00". Empty if none differs.
std::string evidence(const Figures& figures, size_t rank);

}  // namespace sluice::watch
