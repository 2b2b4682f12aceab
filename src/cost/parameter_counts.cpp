#include "cost/parameter_counts.h"

#include "model/parameters.h"

namespace sluice::cost {

int64_t bucket_elements(const model::Program& program, const MemoryModel& memory, int64_t position, int tp) {
  if (memory.layer_parameters == 0) return model::largest_shard(program.kind_at(position), tp);
  const bool end = program.blocks_in({position, position + 1}).empty();
  return ((end ? memory.end_parameters : memory.layer_parameters) + tp - 1) / tp;
}

int64_t operation_elements(const model::Program& program, const MemoryModel& memory, int64_t position,
                           int tp) {
  int64_t elements = 0;
  for (const int bucket : program.at(position).buckets)
    elements += bucket_elements(program, memory, bucket, tp);
  return elements;
}

int64_t all_parameters(const model::Program& program, const MemoryModel& memory) {
  if (memory.layer_parameters > 0) {
    return program.blocks().size() * memory.layer_parameters + 2 * memory.end_parameters;
  }
  int64_t all = 0, of_kind = 0;
  for (int64_t position = 0; position < program.size(); ++position) {
    const bool new_kind = position == 0 || program.at(position).kind != program.at(position - 1).kind;
    if (new_kind) of_kind = model::largest_shard(program.kind_at(position), 1);
    all += of_kind;
  }
  return all;
}

}  // namespace sluice::cost
