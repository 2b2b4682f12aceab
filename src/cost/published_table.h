// What others published of a model on a machine: a table of stages instead of figures by operation.
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
  int64_t saved_bytes_per_token = 0;  // of a stage, from forward to backward
  int64_t util_len_tokens = 0;
  bool derived = false;  // from other rows (cost/derived_rows.h), not published
  bool operator==(const SchemeTimes&) const = default;

  // A third of T(l) is forward, a third input gradient and the rest weight gradient, but for attention's
  // squares, which no weight gradient has: two thirds of them are the input gradient's. `layers` of a stage of
  // so many have their share of it. REQUIRES: kind != kBackward.
  Quadratic cell_times(CellKind kind, int64_t layers, int64_t stage_layers) const;
};

// By (tp, pp), each pp dividing the layers.
using SchemeTable = std::map<std::pair<int, int>, SchemeTimes>;

// InputError naming the scheme, and those that there are, when it has no row.
const SchemeTimes& row_of(const SchemeTable& table, const strategy::Scheme& scheme);

}  // namespace sluice::cost
