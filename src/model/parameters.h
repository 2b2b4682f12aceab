// The parameter table: every tensor of a shape, in buckets, with the way TP cuts it.
//
// A bucket is what pull and push move as a unit: the parameters of one operation of the model program, those
// that are held alike (model/program.h). Inside a bucket parameters lie end to end
// as one flat array. The flat order puts the dimension that TP cuts first, so a shard is a few intervals of
// rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/interval.h"
#include "model/kind.h"
#include "model/program.h"
#include "model/shape.h"

namespace sluice::model {

struct Bucket {
  int index = 0;            // position in ParameterTable::buckets
  int64_t position = 0;     // of its operation
  int kind = 0;             // of its operation, in Program::kinds()
  int64_t layer = -1;       // its operation's number among the blocks; -1 for the ends
  std::string path;         // of a block in Hugging Face files: "model.layers.3."
  bool trained = true;      // all of its parameters or none
  bool of_experts = false;  // likewise
  bool coded = false;       // likewise: its elements are words of codes (model/coded_weight.h)
  std::vector<Parameter> parameters;
  int64_t size = 0;  // elements
};

// Buckets in the order of operations: embedding, blocks, head. With tied embeddings the head reads the
// embedding's bucket too, and its own has only the final norm. embedding(), layer() and head() are an
// operation's first.
struct ParameterTable {
  Shape shape;
  Program program;
  std::vector<Bucket> buckets;

  int64_t size() const;
  // Of trained parameters.
  int64_t trained_size() const;
  const Bucket& first_of(int64_t position) const {
    return buckets[static_cast<size_t>(program.at(position).own.begin)];
  }
  const Bucket& embedding() const { return first_of(program.embedding()); }
  const Bucket& layer(int64_t index) const { return first_of(program.blocks().begin + index); }
  const Bucket& head() const { return first_of(program.head()); }
};

// `program`: of the shape; it says how stages are cut.
ParameterTable parameter_table(const Shape& shape, Program program);
ParameterTable parameter_table(const Shape& shape);

// The rows of `parameter` that a rank computes with, ascending by group: for each group its units
// [t·units/tp, (t+1)·units/tp), or unit ⌊t·units/tp⌋ when tp > units (grouped-query heads shared by
// several ranks); of experts' groups those of its own. Laid end to end they form the rank's local matrix.
// REQUIRES: tp_fault(shape, tp) and experts_fault(shape, expert_lanes) are empty; 0 <= t < tp, and of lanes.
std::vector<base::Interval> local_rows(const Parameter& parameter, const Cut& cut);

// The same as flat intervals of the bucket, for all its parameters; of coded ones the blocks that have some
// of it.
base::IntervalSet shard_of(const Bucket& bucket, const Cut& cut);

// The bucket as it would be if nothing of it were coded.
Bucket plain_bucket(const Bucket& coded);

// Where a parameter's local matrix lies in the rank's flat shard of the bucket, expanded where it is coded.
struct LocalParameter {
  int64_t offset = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};
// Of all its parameters, in their order.
std::vector<LocalParameter> local_parameters(const Bucket& bucket, const Cut& cut);
// Elements of all of them.
int64_t local_elements(const Bucket& bucket, const Cut& cut);

// The bucket's parameter of that role, no adapter, or null.
const Parameter* find_parameter(const Bucket& bucket, std::string_view role);

// Elements of the largest TP shard of an operation of this kind, or of those of its parameters that lie in a
// bucket.
int64_t largest_shard(const Kind& kind, int tp);
int64_t largest_shard(const Kind& kind, int tp, const BucketPlace& bucket);

}  // namespace sluice::model
