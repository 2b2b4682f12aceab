// Sizes for which a library plans attention. Plans take seconds to make, so that few sizes must serve every
// micro-batch of a run, and all of them can be made before its first step.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/sequence_groups.h"

namespace sluice::ops {

// Numbers of one plan: as many sequences (or blocks), each with at most so many queries and keys.
struct PlannedSizes {
  int64_t sequences = 0;
  int64_t longest = 0;
  int64_t longest_keys = 0;
  int64_t rows = 0;      // backward only: queries of all rows, on which its workspace depends
  int64_t key_rows = 0;  // backward only: keys of all rows

  auto operator<=>(const PlannedSizes&) const = default;
};

enum class PlannedFor : uint8_t { kForward, kBackward };

// The sizes of the plan for a group in inputs of so many rows. Lengths are rounded up to 512, 2,048, 8,192 …,
// which costs tiles that end at once; rows to powers of two from 4,096 on, which costs workspace. Queries and
// keys have one size, that of the larger: a plan for each pair would be thousands. REQUIRES: positive
// numbers.
PlannedSizes planned_sizes(PlannedFor direction, const SequenceGroup& group, int64_t rows, int64_t key_rows);

// The same for sequences whose keys lie in pages: those that add one token have a plan of their own.
PlannedSizes planned_page_sizes(const SequenceGroup& group);

// A run's micro-batches have at most so many rows, and sequences at most so many tokens.
struct RowLimits {
  int64_t rows = 0;
  int64_t longest = 0;
};
// The sizes of each group that a micro-batch within the limits can have, smallest first. REQUIRES: 1 <=
// longest <= rows.
std::vector<PlannedSizes> all_planned_sizes(PlannedFor direction, const RowLimits& limits);

// The same for groups of sequences with keys in pages. REQUIRES: longest >= 1.
std::vector<PlannedSizes> all_planned_page_sizes(const RowLimits& limits);

int64_t planned_length(int64_t longest);
inline constexpr int64_t kLeastPlannedRows = 4096;
int64_t planned_rows(int64_t rows);

}  // namespace sluice::ops
