// For tests: runs of training, each with one feature beside its strategies.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "runtime/test_cluster.h"

namespace sluice::runtime {

constexpr double kDoubleTolerance = 1e-10;
// If numbers are rounded to few bits, a unit in the last place decides.
constexpr double kCodedTolerance = 5e-2;

// Six steps on nodes of two ranks.
RunOptions short_run(int world_size, std::vector<std::string> strategies);

struct Feature {
  const char* name;
  RunOptions (*run)();
  double tolerance = kDoubleTolerance;  // relative, of losses
};
inline void PrintTo(const Feature& feature, std::ostream* stream) { *stream << feature.name; }

std::span<const Feature> features();

}  // namespace sluice::runtime
