#include "model/parameter_count.h"

#include "model/experts_kind.h"
#include "model/program.h"

namespace sluice::model {

int64_t parameter_count(const Shape& shape) {
  int64_t all = 0;
  const Program program(shape);
  for (int64_t position = 0; position < program.size(); ++position) {
    for (const Parameter& parameter : program.kind_at(position).parameters()) all += parameter.size();
  }
  return all;
}

int64_t active_parameter_count(const Shape& shape) {
  int64_t all = parameter_count(shape);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const BlockType type = shape.block_type(layer);
    if (type.experts) all -= ExpertsKind(shape, type).unvisited();
  }
  return all;
}

}  // namespace sluice::model
