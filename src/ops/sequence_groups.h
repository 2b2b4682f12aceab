// How packed sequences are handed to kernels that are planned for a number of sequences: in runs of 1, 2, 4 …
// neighbours, so that few plans serve any number and none works on a sequence that is not there.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::ops {

struct SequenceGroup {
  int64_t first = 0;
  int64_t count = 0;  // a power of two
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

// `value` rounded up to a number with at most `bits` significant binary digits: how sizes become the keys of
// plans. REQUIRES: value > 0, bits > 0.
int64_t rounded_up(int64_t value, int bits);

}  // namespace sluice::ops
