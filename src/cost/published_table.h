// Times that others published for a model on a machine: a table of stages instead of figures by operation.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "cost/cell_kind.h"
#include "cost/quadratic.h"
#include "strategy/scheme.h"

namespace sluice::cost {

// One row of a published table: T(l) of any one of pp equal stages on tp ranks, forward and backward
// together, embedding and head inside.
struct SchemeTimes {
  Quadratic stage;
  int64_t saved_bytes_per_token = 0;  // a stage's, from forward to backward
  int64_t util_len_tokens = 0;
  bool derived = false;  // from other rows (cost/derived_rows.h), not published
  bool operator==(const SchemeTimes&) const = default;

  // Forward and input gradient each take a third of T(l), the weight gradient the rest. Attention's squares
  // differ: two thirds of them are the input gradient's, none the weight gradient's. The cell takes the share
  // that `layers` are of `stage_layers`. REQUIRES: kind != kBackward.
  Quadratic cell_times(CellKind kind, int64_t layers, int64_t stage_layers) const;
};

// Rows by (tp, pp); each pp divides the layers.
using SchemeTable = std::map<std::pair<int, int>, SchemeTimes>;

// InputError naming the scheme, and the schemes that have rows, if it has none.
const SchemeTimes& row_of(const SchemeTable& table, const strategy::Scheme& scheme);

}  // namespace sluice::cost
