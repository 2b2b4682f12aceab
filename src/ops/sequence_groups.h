// Divides packed sequences, or blocks of attention, into groups for kernels that are planned for a fixed
// number of them. Groups are runs of 1, 4, 16 or 64 neighbours, so that few plans serve any micro-batch
// (planned_sizes.h) and none works on padding sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interval.h"

namespace sluice::ops {

inline constexpr int64_t kMostGrouped = 64;

struct SequenceGroup {
  int64_t first = 0;
  int64_t count = 0;         // a power of four, at most kMostGrouped
  int64_t longest = 0;       // its sequences' queries
  int64_t longest_keys = 0;  // their keys
  int64_t begins_at = 0;     // index in a list of begins: of the group's sequences, and the last one's end
  int64_t lengths_at = 0;    // index in a list of lengths: the group's
};

// The rows of a sequence's queries and keys, and those of their results.
enum class RowsOf : uint8_t { kQueries, kKeys, kQueryResults, kKeyResults };

// Groups and their GPU data as one array of 8-byte words: lists of `begins` words with begins and ends, group
// by group, then lists of `lengths` 4-byte numbers. Each group's parts begin at multiples of 16 bytes; gaps
// hold 0. Packed sequences have one list of each, for all rows; blocks have one for each kind of rows, and
// lengths of queries and of keys.
struct SequenceTable {
  std::vector<SequenceGroup> groups;  // in the order of sequences, the largest group first
  std::vector<int64_t> words;
  int64_t begins = 0;
  int64_t lengths = 0;
  bool of_blocks = false;

  // The word at which the list of such rows begins.
  int64_t begins_of(RowsOf rows) const { return of_blocks ? static_cast<int64_t>(rows) * begins : 0; }
  // The 4-byte number, counted from the first word, at which the lengths of such rows begin.
  int64_t lengths_of(RowsOf rows) const {
    return of_blocks ? 8 * begins + (rows == RowsOf::kKeys ? lengths : 0) : 2 * begins;
  }
};

// Groups adjacent sequences: sequence i has rows [begins[i], begins[i + 1]).
SequenceTable sequence_table(const std::vector<int64_t>& begins);

// Groups blocks: block i has these rows of queries and of keys. The rows of its results lie behind those of
// block i - 1. REQUIRES: as many of both, none empty.
SequenceTable block_table(const std::vector<base::Interval>& queries,
                          const std::vector<base::Interval>& keys);

}  // namespace sluice::ops
