// The parameter table: every tensor of a model, in buckets, with the way TP cuts it.
//
// Pull and push move a bucket as a unit. It has those parameters of one operation of the model program that
// are held alike (model/program.h). Inside a bucket parameters lie end to end as one flat array.
// The flat order puts the dimension that TP cuts first, so a shard is a few intervals
// of rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/interval.h"
#include "model/kind.h"
#include "model/model.h"
#include "model/program.h"

namespace sluice::model {

struct Bucket {
  int index = 0;            // position in ParameterTable::buckets
  int64_t position = 0;     // its operation's position
  int kind = 0;             // its operation's, in Program::kinds()
  int64_t layer = -1;       // its operation's number among the blocks; -1 for the ends
  std::string path;         // the block's name in Hugging Face files: "model.layers.3."
  bool trained = true;      // all of its parameters or none
  bool of_experts = false;  // likewise
  bool coded = false;       // likewise: its elements are words of codes (model/coded_weight.h)
  std::vector<Parameter> parameters;
  int64_t size = 0;  // elements
};

// Buckets in the order of operations: embedding, blocks, head. With tied embeddings, and for an MTP layer,
// the head also reads the embedding's bucket. A tied head's own has only the final norm. embedding(), layer()
// and head() return an operation's first bucket.
struct ParameterTable {
  Model model;
  Program program;
  std::vector<Bucket> buckets;

  int64_t size() const;
  // Elements of trained parameters.
  int64_t trained_size() const;
  const Bucket& first_of(int64_t position) const {
    return buckets[static_cast<size_t>(program.at(position).own.begin)];
  }
  const Bucket& embedding() const { return first_of(program.embedding()); }
  const Bucket& layer(int64_t index) const { return first_of(program.blocks().begin + index); }
  const Bucket& head() const { return first_of(program.head()); }
};

// `program`: made from the same model; decides how stages are cut.
ParameterTable parameter_table(const Model& model, Program program);
ParameterTable parameter_table(const Model& model);

// The rows of `parameter` that a rank computes with, ascending by group. A group gives units [t·units/tp,
// (t+1)·units/tp), or unit ⌊t·units/tp⌋ if tp > units (grouped-query heads shared by several ranks). Experts'
// groups count only if the expert is the lane's own. Laid end to end the rows form the rank's local matrix.
// REQUIRES: tp_fault(model, tp) and experts_fault(model, expert_lanes) are empty; 0 <= t < tp; lane in range.
std::vector<base::Interval> local_rows(const Parameter& parameter, const Cut& cut);

// The same as flat intervals of the bucket, for all its parameters. Coded parameters give all blocks that
// contain some of those rows.
base::IntervalSet shard_of(const Bucket& bucket, const Cut& cut);

// The bucket as if none of its parameters were coded.
Bucket plain_bucket(const Bucket& coded);

// Place of a parameter's local matrix in the rank's flat shard of the bucket, expanded if coded.
struct LocalParameter {
  int64_t offset = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};
// For all parameters of the bucket, in order.
std::vector<LocalParameter> local_parameters(const Bucket& bucket, const Cut& cut);
// Sum of their elements.
int64_t local_elements(const Bucket& bucket, const Cut& cut);

// The bucket's parameter of that role, no adapter, or null.
const Parameter* find_parameter(const Bucket& bucket, std::string_view role);

// Elements of the largest TP shard of an operation of this kind, or of those of its parameters that lie in
// `bucket`.
int64_t largest_shard(const Kind& kind, int tp);
int64_t largest_shard(const Kind& kind, int tp, const BucketPlace& bucket);

}  // namespace sluice::model
