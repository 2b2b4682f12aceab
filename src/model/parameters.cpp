#include "model/parameters.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/family.h"

namespace sluice::model {
namespace {

Bucket bucket(const Program& program, Family family, int64_t position) {
  const bool in_block = program.blocks_in({position, position + 1}).size() == 1;
  Bucket result{.index = static_cast<int>(position),
                .kind = program.at(position).kind,
                .layer = in_block ? position - program.blocks().begin : -1,
                .parameters = program.kind_at(position).parameters()};
  const std::string prefix = in_block ? base::text("layers.", result.layer, ".") : "";
  for (Parameter& parameter : result.parameters) {
    for (const TensorNames& names : entry_of(family).tensors) {
      if (names.role == parameter.role) parameter.tensors = {names.tensors.begin(), names.tensors.end()};
    }
    parameter.name = prefix + std::string(parameter.role);
    parameter.offset = result.size;
    result.size += parameter.size();
  }
  return result;
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
  ParameterTable table{.shape = shape, .program = Program(shape), .buckets = {}};
  for (int64_t position = 0; position < table.program.size(); ++position) {
    table.buckets.push_back(bucket(table.program, shape.family, position));
  }
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

LocalParameter local_parameter(const Bucket& bucket, std::string_view role, int tp, int t) {
  LocalParameter local;
  for (const Parameter& parameter : bucket.parameters) {
    local.rows = 0;
    local.columns = parameter.columns;
    for (const base::Interval& rows : tp_rows(parameter, tp, t)) local.rows += rows.size();
    if (parameter.role == role) return local;
    local.offset += local.rows * local.columns;
  }
  SLUICE_ASSERT(false, base::text("bucket ", bucket.index, " has no parameter ", role));
}

const Parameter* find_parameter(const Bucket& bucket, std::string_view role) {
  const auto found = std::ranges::find(bucket.parameters, role, &Parameter::role);
  return found == bucket.parameters.end() ? nullptr : &*found;
}

int64_t largest_shard(const Kind& kind, int tp) {
  int64_t largest = 0;
  const std::vector<Parameter> parameters = kind.parameters();
  for (int t = 0; t < tp; ++t) {
    int64_t shard = 0;
    for (const Parameter& parameter : parameters) {
      for (const base::Interval& rows : tp_rows(parameter, tp, t)) shard += rows.size() * parameter.columns;
    }
    largest = std::max(largest, shard);
  }
  return largest;
}

}  // namespace sluice::model
