// Rows that a stage sends to the next beside the residual stream: results of operations before a position
// that operations from the position on need.
#pragma once

#include <array>
#include <cstdint>

#include "base/interval.h"
#include "model/program.h"

namespace sluice::model {

inline constexpr size_t kKeySlots = 2;  // number of layers that may lend keys and values

struct BorderRows {
  base::Interval layers;  // layers whose columns of embeddings by layer travel
  int64_t layer_width = 0;
  // By slot: columns of keys and values that a TP rank has for every row, not just its shard's; 0: none.
  std::array<int64_t, kKeySlots> keys = {};
  bool empty() const { return layer_columns() == 0 && keys == std::array<int64_t, kKeySlots>{}; }
  int64_t layer_columns() const { return layers.size() * layer_width; }
};

// Rows at the border in front of an operation, for one rank of the TP degree.
BorderRows border_rows(const Program& program, int64_t position, int tp);
// Elements for a token at that border on all TP ranks together, its residual row included.
int64_t border_width(const Program& program, int64_t position, int tp);
// Bytes for a token on one TP rank at that border, without the residual row.
int64_t carried_bytes(const Program& program, int64_t position, int tp, int64_t element_bytes);
// Elements for a token, on all TP ranks together, of the gradients that a backward of the run makes of
// carried rows: for the layers' embeddings from its first layer on, and for keys whose last borrower it has.
int64_t carried_gradient_width(const Program& program, base::Interval run, int tp);
// The largest width among all borders of a pipeline.
int64_t widest_border(const Program& program, int tp, int stages);

// The operation that lends keys of a slot; -1: none.
int64_t lender_of(const Program& program, size_t slot);

// Whether an operation's layer attends to another layer's keys.
bool borrows_keys(const Program& program, int64_t position);

}  // namespace sluice::model
