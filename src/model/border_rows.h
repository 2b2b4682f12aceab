// What goes from a stage to the next beside the rows of the residual stream: what operations before a
// position made for those from it on.
#pragma once

#include <array>
#include <cstdint>

#include "base/interval.h"
#include "model/program.h"

namespace sluice::model {

inline constexpr size_t kKeySlots = 2;  // as many layers may lend keys and values

struct BorderRows {
  base::Interval layers;  // whose columns of embeddings by layer go
  int64_t layer_width = 0;
  // By slot: columns of keys and values that a TP rank has of each row, not of its shard alone; 0: none go.
  std::array<int64_t, kKeySlots> keys = {};
  bool empty() const { return layer_columns() == 0 && keys == std::array<int64_t, kKeySlots>{}; }
  int64_t layer_columns() const { return layers.size() * layer_width; }
};

// At the border in front of an operation, on a rank of a TP degree.
BorderRows border_rows(const Program& program, int64_t position, int tp);
// Elements that a token takes there on all TP ranks together, its row of the residual stream included.
int64_t border_width(const Program& program, int64_t position, int tp);
// A TP rank's bytes of a token's row there, that of the residual stream apart.
int64_t carried_bytes(const Program& program, int64_t position, int tp, int64_t element_bytes);
// The most of all borders of a pipeline.
int64_t widest_border(const Program& program, int tp, int stages);

// The operation that lends keys of a slot; -1: none does.
int64_t lender_of(const Program& program, size_t slot);

// Whether an operation's layer attends to keys that another one made.
bool borrows_keys(const Program& program, int64_t position);

}  // namespace sluice::model
