#include "model/parameters.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "model/coded_weight.h"
#include "model/families/family.h"

namespace sluice::model {
namespace {

const char* name_of(Factor factor) {
  switch (factor) {
    case Factor::kNone: return "";
    case Factor::kLeft: return ".left";
    case Factor::kRight: return ".right";
    case Factor::kMagnitude: return ".magnitude";
  }
  return "";
}

Bucket bucket(const Model& model, const Program& program, int index) {
  const BucketPlace& own = program.buckets()[static_cast<size_t>(index)];
  const int64_t position = own.position;
  const bool in_block = program.blocks_in({position, position + 1}).size() == 1;
  Bucket result{.index = index,
                .position = position,
                .kind = program.at(position).kind,
                .layer = in_block ? position - program.blocks().begin : -1,
                .path = {},
                .trained = own.trained,
                .of_experts = own.of_experts,
                .coded = own.coded,
                .parameters = {}};
  const std::string prefix = in_block ? base::text("layers.", result.layer, ".") : "";
  const Family& family = family_of(model.outline());
  if (in_block) result.path = base::text(family.trunk, ".", family.blocks, ".", result.layer, ".");
  int64_t place = 0;
  for (Parameter parameter : program.kind_at(position).parameters()) {
    parameter.place = place;
    place += parameter.size();
    if (!own.has(parameter)) continue;
    parameter.name = (parameter.of_mtp ? "mtp." : prefix) + std::string(parameter.role);
    if (parameter.factor != Factor::kNone) {
      parameter.name += base::text(name_of(parameter.factor), parameter.adapted);
    }
    parameter.offset = result.size;
    result.size += parameter.stored_size();
    result.parameters.push_back(std::move(parameter));
  }
  return result;
}

// The units of a group that a TP rank holds.
base::Interval units_of_rank(int64_t units, int tp, int t) {
  if (tp <= units) return base::even_part(units, tp, t);
  const int64_t shared = t * units / tp;
  return {shared, shared + 1};
}

// By group, whether a lane computes with it; for experts' groups, whether the expert is its own.
std::vector<char> groups_of_lane(const Parameter& parameter, const Cut& cut) {
  const size_t groups = parameter.groups.size();
  if (parameter.experts == 0) return std::vector<char>(groups, 1);
  std::vector<char> own(groups, 0);
  const auto of_expert = static_cast<ptrdiff_t>(groups) / parameter.experts;
  const auto take = [&](int64_t expert) { std::fill_n(own.begin() + expert * of_expert, of_expert, 1); };
  const base::Interval even = base::even_part(parameter.experts, cut.expert_lanes, cut.expert_lane);
  for (const int expert : cut.own_experts) take(expert);
  for (int64_t expert = even.begin; cut.own_experts.empty() && expert < even.end; ++expert) take(expert);
  return own;
}

}  // namespace

int64_t ParameterTable::size() const {
  int64_t total = 0;
  for (const Bucket& bucket : buckets) total += bucket.size;
  return total;
}

int64_t ParameterTable::trained_size() const {
  int64_t total = 0;
  for (const Bucket& bucket : buckets) total += bucket.trained ? bucket.size : 0;
  return total;
}

ParameterTable parameter_table(const Model& model) {
  validate(model.outline());
  return parameter_table(model, Program(model));
}

ParameterTable parameter_table(const Model& model, Program program) {
  ParameterTable table{.model = model, .program = std::move(program), .buckets = {}};
  for (size_t index = 0; index < table.program.buckets().size(); ++index) {
    table.buckets.push_back(bucket(model, table.program, static_cast<int>(index)));
  }
  return table;
}

std::vector<base::Interval> local_rows(const Parameter& parameter, const Cut& cut) {
  SLUICE_ASSERT(cut.tp >= 1 && cut.t >= 0 && cut.t < cut.tp, base::text("TP rank ", cut.t, " of ", cut.tp));
  const std::vector<char> own = groups_of_lane(parameter, cut);
  std::vector<base::Interval> rows;
  int64_t group_begin = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    const RowGroup& group = parameter.groups[i];
    base::Interval local{0, group.rows};
    if (group.units > 0) {
      const int64_t unit_rows = group.rows / group.units;
      const base::Interval units = units_of_rank(group.units, cut.tp, cut.t);
      local = {units.begin * unit_rows, units.end * unit_rows};
    }
    if (own[i] != 0) rows.push_back({group_begin + local.begin, group_begin + local.end});
    group_begin += group.rows;
  }
  return rows;
}

base::IntervalSet shard_of(const Bucket& bucket, const Cut& cut) {
  base::IntervalSet shard;
  for (const Parameter& parameter : bucket.parameters) {
    if (parameter.format.coded()) {
      for (const CodedRows& run : coded_rows(parameter, local_rows(parameter, cut))) shard.add(run.words());
      continue;
    }
    for (const base::Interval& rows : local_rows(parameter, cut)) {
      shard.add({parameter.offset + rows.begin * parameter.columns,
                 parameter.offset + rows.end * parameter.columns});
    }
  }
  return shard;
}

std::vector<LocalParameter> local_parameters(const Bucket& bucket, const Cut& cut) {
  std::vector<LocalParameter> all;
  int64_t offset = 0;
  for (const Parameter& parameter : bucket.parameters) {
    LocalParameter& local = all.emplace_back(LocalParameter{.offset = offset, .columns = parameter.columns});
    for (const base::Interval& rows : local_rows(parameter, cut)) local.rows += rows.size();
    offset += local.rows * local.columns;
  }
  return all;
}

Bucket plain_bucket(const Bucket& coded) {
  Bucket plain = coded;
  plain.coded = false;
  plain.size = 0;
  for (Parameter& parameter : plain.parameters) {
    parameter.format = {};
    parameter.offset = plain.size;
    plain.size += parameter.size();
  }
  return plain;
}

int64_t local_elements(const Bucket& bucket, const Cut& cut) {
  int64_t elements = 0;
  for (const LocalParameter& local : local_parameters(bucket, cut)) elements += local.rows * local.columns;
  return elements;
}

const Parameter* find_parameter(const Bucket& bucket, std::string_view role) {
  const auto found = std::ranges::find_if(bucket.parameters, [&](const Parameter& parameter) {
    return parameter.role == role && parameter.factor == Factor::kNone;
  });
  return found == bucket.parameters.end() ? nullptr : &*found;
}

namespace {

// Elements of one expert's rows, or of all rows, that TP rank `t` computes with.
int64_t local_elements_of_one(const Parameter& parameter, int tp, int t) {
  const int64_t alike = std::max<int64_t>(1, parameter.experts);
  const int64_t groups = std::ssize(parameter.groups) / alike;
  int64_t rows = 0;
  for (const RowGroup& group : std::span(parameter.groups).first(static_cast<size_t>(groups))) {
    if (group.units == 0) rows += group.rows;
    if (group.units > 0) rows += units_of_rank(group.units, tp, t).size() * (group.rows / group.units);
  }
  return rows * parameter.columns;
}

// Counts parameters that `counts` accepts. Experts are alike, so one expert is cut and multiplied.
template <typename Counts>
int64_t largest_shard_of(const Kind& kind, int tp, Counts counts) {
  int64_t largest = 0;
  for (int t = 0; t < tp; ++t) {
    int64_t shard = 0;
    for (const Parameter& parameter : kind.parameters()) {
      if (!counts(parameter)) continue;
      const auto alike = static_cast<int>(std::max<int64_t>(1, parameter.experts));
      if (!parameter.format.coded()) {
        shard += alike * local_elements_of_one(parameter, tp, t);
        continue;
      }
      for (const CodedRows& run : coded_rows(parameter, local_rows(parameter, {tp, t, alike})))
        shard += alike * run.words().size();
    }
    largest = std::max(largest, shard);
  }
  return largest;
}

}  // namespace

int64_t largest_shard(const Kind& kind, int tp) {
  return largest_shard_of(kind, tp, [](const Parameter&) { return true; });
}

int64_t largest_shard(const Kind& kind, int tp, const BucketPlace& bucket) {
  return largest_shard_of(kind, tp, [&](const Parameter& own) { return bucket.has(own); });
}

}  // namespace sluice::model
