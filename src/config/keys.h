// The table of a run configuration's keys, used to read, write, compare and explain configurations.
#pragma once

#include <cstdint>
#include <span>

#include "config/field.h"
#include "config/run_config.h"

namespace sluice::config {

// Highest step number; sums of many step numbers stay inside 64 bits.
inline constexpr int64_t kMostSteps = int64_t{1} << 40;

// A section [name] of the file.
struct Section {
  const char* name;
  const char* meaning;
  void (*visit)(RunConfig& config, Fields& keys);
};
// Sections in the order in which people read them.
std::span<const Section> sections();

// Visit the keys of one [[phase]] and of one [[optimizer.groups]].
void visit(PhaseConfig& phase, Fields& keys);
void visit(GroupConfig& group, Fields& keys);

}  // namespace sluice::config
