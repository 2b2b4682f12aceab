#include "model/parameters.h"

#include "base/error.h"
#include "base/text.h"

namespace sluice::model {
namespace {

// A matrix whose groups hold whole heads or single rows.
Parameter matrix(Role role, std::string name, int64_t columns, std::vector<RowGroup> groups) {
  Parameter parameter{.role = role, .name = std::move(name), .columns = columns, .groups = std::move(groups)};
  for (const RowGroup& group : parameter.groups) parameter.rows += group.rows;
  return parameter;
}

Parameter norm(Role role, std::string name, int64_t width) {
  Parameter parameter = matrix(role, std::move(name), 1, {{width, 0}});
  parameter.replicated = true;
  return parameter;
}

// Lays the parameters end to end.
Bucket bucket(BucketKind kind, int64_t layer, int index, std::vector<Parameter> parameters) {
  Bucket result{.index = index, .kind = kind, .layer = layer, .parameters = std::move(parameters)};
  for (Parameter& parameter : result.parameters) {
    parameter.offset = result.size;
    result.size += parameter.size();
  }
  return result;
}

Bucket layer_bucket(const Shape& shape, int64_t layer) {
  const std::string prefix = base::text("layers.", layer, ".");
  const int64_t hidden = shape.hidden;
  const RowGroup q{shape.q_width(), shape.heads};
  const RowGroup kv{shape.kv_width(), shape.kv_heads};
  const RowGroup ffn{shape.ffn_hidden, shape.ffn_hidden};
  return bucket(BucketKind::kLayer, layer, static_cast<int>(1 + layer),
                {norm(Role::kAttentionNorm, prefix + "attention_norm", hidden),
                 matrix(Role::kQkv, prefix + "qkv", hidden, {q, kv, kv}),
                 matrix(Role::kAttentionOut, prefix + "attention_out", hidden, {q}),
                 norm(Role::kMlpNorm, prefix + "mlp_norm", hidden),
                 matrix(Role::kGateUp, prefix + "gate_up", hidden, {ffn, ffn}),
                 matrix(Role::kDown, prefix + "down", hidden, {ffn})});
}

Bucket head_bucket(const Shape& shape) {
  std::vector<Parameter> parameters = {norm(Role::kFinalNorm, "final_norm", shape.hidden)};
  if (!shape.tie_embeddings) {
    parameters.push_back(matrix(Role::kHead, "head", shape.hidden, {{shape.vocab, shape.vocab}}));
  }
  return bucket(BucketKind::kHead, -1, static_cast<int>(1 + shape.layers), std::move(parameters));
}

// The units of a group that a TP rank holds.
base::Interval units_of_rank(int64_t units, int tp, int t) {
  if (tp <= units) return base::even_part(units, tp, t);
  const int64_t shared = t * units / tp;
  return {shared, shared + 1};
}

}  // namespace

int64_t ParameterTable::size() const {
  int64_t total = 0;
  for (const Bucket& bucket : buckets) total += bucket.size;
  return total;
}

ParameterTable parameter_table(const Shape& shape) {
  validate(shape);
  ParameterTable table{.shape = shape};
  table.buckets.push_back(
      bucket(BucketKind::kEmbedding, -1, 0,
             {matrix(Role::kEmbedding, "embedding", shape.hidden, {{shape.vocab, shape.vocab}})}));
  for (int64_t layer = 0; layer < shape.layers; ++layer) table.buckets.push_back(layer_bucket(shape, layer));
  table.buckets.push_back(head_bucket(shape));
  return table;
}

std::vector<base::Interval> tp_rows(const Parameter& parameter, int tp, int t) {
  SLUICE_ASSERT(tp >= 1 && t >= 0 && t < tp, base::text("TP rank ", t, " of ", tp));
  std::vector<base::Interval> rows;
  int64_t group_begin = 0;
  for (const RowGroup& group : parameter.groups) {
    base::Interval local{0, group.rows};
    if (group.units > 0) {
      const int64_t unit_rows = group.rows / group.units;
      const base::Interval units = units_of_rank(group.units, tp, t);
      local = {units.begin * unit_rows, units.end * unit_rows};
    }
    rows.push_back({group_begin + local.begin, group_begin + local.end});
    group_begin += group.rows;
  }
  return rows;
}

base::IntervalSet tp_shard(const Bucket& bucket, int tp, int t) {
  base::IntervalSet shard;
  for (const Parameter& parameter : bucket.parameters) {
    for (const base::Interval& rows : tp_rows(parameter, tp, t)) {
      shard.add({parameter.offset + rows.begin * parameter.columns,
                 parameter.offset + rows.end * parameter.columns});
    }
  }
  return shard;
}

LocalParameter local_parameter(const Bucket& bucket, Role role, int tp, int t) {
  LocalParameter local;
  for (const Parameter& parameter : bucket.parameters) {
    local.rows = 0;
    local.columns = parameter.columns;
    for (const base::Interval& rows : tp_rows(parameter, tp, t)) local.rows += rows.size();
    if (parameter.role == role) return local;
    local.offset += local.rows * local.columns;
  }
  SLUICE_ASSERT(false,
                base::text("bucket ", bucket.index, " has no parameter of role ", static_cast<int>(role)));
}

}  // namespace sluice::model
