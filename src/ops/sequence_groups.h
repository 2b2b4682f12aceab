// How packed sequences are handed to kernels that are planned for a number of sequences: in runs of 1, 4, 16
// … neighbours, and for sizes that are powers of two, so that few plans serve any micro-batch and none works
// on a sequence that is not there.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::ops {

struct SequenceGroup {
  int64_t first = 0;
  int64_t count = 0;  // a power of four
  int64_t longest = 0;
  int64_t begins_at = 0;   // of the table: where the begins of its sequences, and its end, stand
  int64_t lengths_at = 0;  // of the table's lengths: where those of its sequences stand
};

// Groups and what they need on a GPU as one array of 8-byte words: `begins` words with begins and ends, group
// by group, then lengths as 4-byte numbers. Each group's parts begin at multiples of 16 bytes; gaps hold 0.
struct SequenceTable {
  std::vector<SequenceGroup> groups;  // in the order of sequences, the largest first
  std::vector<int64_t> words;
  int64_t begins = 0;
};

// Of sequences that lie end to end: sequence i has rows [begins[i], begins[i + 1]).
SequenceTable sequence_table(const std::vector<int64_t>& begins);

// What a plan is made for that serves sequences of at most so many rows, and micro-batches of so many: the
// next power of two, none below kLeastPlannedLength and kLeastPlannedRows. A longer bound costs tiles that
// end at once, more rows cost workspace. REQUIRES: a positive number.
inline constexpr int64_t kLeastPlannedLength = 512;
inline constexpr int64_t kLeastPlannedRows = 4096;
int64_t planned_length(int64_t longest);
int64_t planned_rows(int64_t rows);

}  // namespace sluice::ops
