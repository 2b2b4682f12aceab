// The keys of a run configuration: the one table by which it is read, written, compared and explained.
#pragma once

#include <cstdint>
#include <span>

#include "config/field.h"
#include "config/run_config.h"

namespace sluice::config {

// A step's number is at most this: sums of many stay inside 64 bits.
inline constexpr int64_t kMostSteps = int64_t{1} << 40;

// [name] of the file.
struct Section {
  const char* name;
  const char* meaning;
  void (*visit)(RunConfig& config, Fields& keys);
};
// In the order in which people read them.
std::span<const Section> sections();

// A [[phase]], and a [[optimizer.groups]].
void visit(PhaseConfig& phase, Fields& keys);
void visit(GroupConfig& group, Fields& keys);

}  // namespace sluice::config
