// The parameter table: every tensor of a shape, in buckets, with the way TP cuts it.
//
// A bucket is what pull and push move as a unit: the embedding, each layer, the head (final norm and, when
// not tied, the output matrix). Inside a bucket parameters lie end to end as one flat array. The flat
// order puts the dimension that TP cuts first, so a shard is a few intervals of rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/interval.h"
#include "model/shape.h"

namespace sluice::model {

// A run of rows of a parameter that TP cuts on its own.
struct RowGroup {
  int64_t rows = 0;  // rows of the whole parameter in this group
  // Rows are cut in units: heads × head_dim rows for attention, single rows otherwise; 0 units: replicated.
  int64_t units = 0;
};

enum class Role {
  kEmbedding,
  kAttentionNorm,
  kQkv,
  kAttentionOut,
  kMlpNorm,
  kGateUp,
  kDown,
  kFinalNorm,
  kHead
};

// One tensor as stored: `rows` x `columns`, row-major; norms are rows = width, columns = 1.
struct Parameter {
  Role role = Role::kEmbedding;
  std::string name;  // "layers.3.qkv"
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<RowGroup> groups;  // in row order; rows add up
  bool replicated = false;       // every TP rank holds all of it (norms)
  int64_t offset = 0;            // first element in the bucket's flat array
  int64_t size() const { return rows * columns; }
  // Weight decay applies to matrices, not to one-dimensional parameters.
  bool one_dimensional() const { return columns == 1; }
};

enum class BucketKind { kEmbedding, kLayer, kHead };

struct Bucket {
  int index = 0;  // position in ParameterTable::buckets
  BucketKind kind = BucketKind::kLayer;
  int64_t layer = -1;  // for kLayer
  std::vector<Parameter> parameters;
  int64_t size = 0;  // elements
};

// Buckets in forward order: embedding, layers 0…, head. With tied embeddings the last stage also holds the
// embedding bucket and the head bucket has only the final norm.
struct ParameterTable {
  Shape shape;
  std::vector<Bucket> buckets;

  int64_t size() const;
  const Bucket& embedding() const { return buckets.front(); }
  const Bucket& layer(int64_t index) const { return buckets[static_cast<size_t>(1 + index)]; }
  const Bucket& head() const { return buckets.back(); }
};

ParameterTable parameter_table(const Shape& shape);

// The rows of `parameter` that TP rank t of tp holds, ascending by group: for each group its units
// [t·units/tp, (t+1)·units/tp), or unit ⌊t·units/tp⌋ when tp > units (grouped-query heads shared by
// several ranks). Laid end to end they form the rank's local matrix.
// REQUIRES: tp_fault(shape, tp) is empty, 0 <= t < tp.
std::vector<base::Interval> tp_rows(const Parameter& parameter, int tp, int t);

// The same as flat intervals of the bucket, for all its parameters.
base::IntervalSet tp_shard(const Bucket& bucket, int tp, int t);

// Where a parameter's local matrix lies in the rank's flat shard of the bucket.
struct LocalParameter {
  int64_t offset = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};
// REQUIRES: the bucket has a parameter of that role.
LocalParameter local_parameter(const Bucket& bucket, Role role, int tp, int t);

}  // namespace sluice::model
