#include "cost/parameter_counts.h"

#include <algorithm>

#include "model/parameters.h"

namespace sluice::cost {
namespace {

void add(ParameterCount& to, const model::BucketPlace& bucket, int64_t elements) {
  to.all += elements;
  if (bucket.trained) to.trained += elements;
  if (bucket.coded) to.coded += elements;
}

}  // namespace

int64_t bucket_elements(const model::Program& program, const MemoryModel& memory, int bucket, int tp) {
  const model::BucketPlace& place = program.buckets()[static_cast<size_t>(bucket)];
  const int64_t position = place.position;
  const model::Kind& kind = program.kind_at(position);
  if (memory.layer_parameters == 0) return model::largest_shard(kind, tp, place);
  const bool end = program.blocks_in({position, position + 1}).empty();
  const int64_t counted = end ? memory.end_parameters : memory.layer_parameters;
  const bool whole = program.at(position).own.size() == 1;
  const auto part = whole ? counted
                          : static_cast<int64_t>(Wide{counted} * model::largest_shard(kind, 1, place) /
                                                 model::largest_shard(kind, 1));
  return (part + tp - 1) / tp;
}

OperationElements operation_elements(const model::Program& program, const MemoryModel& memory,
                                     int64_t position, int tp) {
  OperationElements elements;
  for (const int bucket : program.at(position).buckets) {
    const model::BucketPlace& place = program.buckets()[static_cast<size_t>(bucket)];
    add(place.of_experts ? elements.experts : elements.others, place,
        bucket_elements(program, memory, bucket, tp));
  }
  return elements;
}

int64_t expanded_elements(const model::Program& program, int64_t position, int tp, int expert_lanes) {
  int64_t most = 0;
  for (int t = 0; t < tp; ++t) {
    int64_t elements = 0;
    for (const model::Parameter& parameter : program.kind_at(position).parameters()) {
      if (!parameter.format.coded()) continue;
      const int lanes = parameter.experts > 0 ? expert_lanes : 1;
      for (const base::Interval& rows :
           model::local_rows(parameter, {.tp = tp, .t = t, .expert_lanes = lanes}))
        elements += rows.size() * parameter.columns;
    }
    most = std::max(most, elements);
  }
  return most;
}

int64_t exact_elements(const model::Program& program, int64_t position) {
  int64_t elements = 0;
  for (const model::Parameter& parameter : program.kind_at(position).parameters())
    if (parameter.keeps_its_bits()) elements += parameter.stored_size();
  return elements;
}

ParameterCount all_parameters(const model::Program& program, const MemoryModel& memory) {
  ParameterCount count, of_kind;
  for (int64_t position = 0; position < program.size(); ++position) {
    const bool new_kind = position == 0 || program.at(position).kind != program.at(position - 1).kind;
    if (new_kind) {
      of_kind = {};
      const base::Interval own = program.at(position).own;
      for (int64_t bucket = own.begin; bucket < own.end; ++bucket)
        add(of_kind, program.buckets()[static_cast<size_t>(bucket)],
            bucket_elements(program, memory, static_cast<int>(bucket), 1));
    }
    count.all += of_kind.all;
    count.trained += of_kind.trained;
    count.coded += of_kind.coded;
  }
  return count;
}

}  // namespace sluice::cost
