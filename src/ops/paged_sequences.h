// Sequences that are being generated: their keys lie in pages of a cache, a page for some tokens, and each
// one's queries are its last tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "ops/sequence_groups.h"

namespace sluice::ops {

struct PagedSequence {
  base::Interval queries;      // rows of q; those of all sequences lie one behind the other
  int64_t keys = 0;            // at least as many
  std::vector<int64_t> pages;  // page p has rows [p · page_rows, (p + 1) · page_rows) of k and v
};

// With what libraries read: `words` are the groups' (sequence_groups.h); `page_table` has for each group
// [sequences, pages of the planned longest keys], int32, from a multiple of 16 bytes on. Places behind a
// sequence's own pages hold page 0.
struct PagedSequences {
  int64_t page_rows = 0;
  std::vector<PagedSequence> sequences;
  SequenceTable table;
  std::vector<int64_t> tables_at;  // by group: where its table begins, in int32 numbers
  at::Tensor words;
  at::Tensor page_table;

  bool empty() const { return sequences.empty(); }
  int64_t queries() const { return empty() ? 0 : sequences.back().queries.end; }
};
// REQUIRES: queries from row 0 on, none empty, as many pages as the keys need.
PagedSequences paged_sequences(std::vector<PagedSequence> sequences, int64_t page_rows,
                               const at::Device& device);

}  // namespace sluice::ops
