// Divides packed sequences into groups for kernels that are planned for a fixed number of sequences. Groups
// are runs of 1, 4, 16 … neighbours, and planned sizes are powers of two, so that few plans serve any
// micro-batch and none works on padding sequences.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::ops {

struct SequenceGroup {
  int64_t first = 0;
  int64_t count = 0;  // a power of four
  int64_t longest = 0;
  int64_t begins_at = 0;   // index in the table: begins of the group's sequences, and the last one's end
  int64_t lengths_at = 0;  // index among the table's lengths: the group's
};

// Groups and their GPU data as one array of 8-byte words: first `begins` words with begins and ends, group by
// group, then lengths as 4-byte numbers. Each group's parts begin at multiples of 16 bytes; gaps hold 0.
struct SequenceTable {
  std::vector<SequenceGroup> groups;  // in the order of sequences, the largest group first
  std::vector<int64_t> words;
  int64_t begins = 0;
};

// Groups adjacent sequences: sequence i has rows [begins[i], begins[i + 1]).
SequenceTable sequence_table(const std::vector<int64_t>& begins);

// The sizes of a plan for sequences, or micro-batches, of at most so many rows: the next power of two, at
// least kLeastPlannedLength or kLeastPlannedRows. A longer length costs tiles that end at once; more rows
// cost workspace. REQUIRES: a positive number.
inline constexpr int64_t kLeastPlannedLength = 512;
inline constexpr int64_t kLeastPlannedRows = 4096;
int64_t planned_length(int64_t longest);
int64_t planned_rows(int64_t rows);

}  // namespace sluice::ops
