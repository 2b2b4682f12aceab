#include "graph/model_program.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::graph {

base::Interval ModelProgram::of_stage(int stages, int stage) const {
  const base::Interval layers = strategy::layers_of_stage(this->layers(), stages, stage);
  return {stage == 0 ? embedding() : layers.begin + 1, stage == stages - 1 ? head() + 1 : layers.end + 1};
}

base::Interval ModelProgram::layers_in(base::Interval run) const {
  return {std::max<int64_t>(run.begin - 1, 0), std::min(run.end - 1, layers())};
}

base::Interval ModelProgram::at_work(cost::CellKind kind, base::Interval run) const {
  switch (kind) {
    case cost::CellKind::kForward: return run;
    case cost::CellKind::kBackward:
    case cost::CellKind::kBackwardInput: return base::intersect(run, {embedding(), head()});
    case cost::CellKind::kBackwardWeight: return base::intersect(run, {embedding() + 1, head()});
  }
  SLUICE_ASSERT(false, "unknown cell kind");
}

bool ModelProgram::writes_gradient(cost::CellKind kind, const Operation& operation) const {
  switch (operation.kind) {
    case Operation::Kind::kHead: return kind == cost::CellKind::kForward;
    case Operation::Kind::kEmbedding:
      return kind == cost::CellKind::kBackward || kind == cost::CellKind::kBackwardInput;
    case Operation::Kind::kLayer:
      return kind == cost::CellKind::kBackward || kind == cost::CellKind::kBackwardWeight;
  }
  SLUICE_ASSERT(false, "unknown operation kind");
}

ModelProgram model_program(const model::ParameterTable& table) {
  ModelProgram program;
  const int embedding = table.embedding().index;
  program.operations.push_back({Operation::Kind::kEmbedding, -1, {embedding}});
  for (int64_t layer = 0; layer < table.shape.layers; ++layer) {
    program.operations.push_back({Operation::Kind::kLayer, layer, {table.layer(layer).index}});
  }
  Operation head{Operation::Kind::kHead, -1, {table.head().index}};
  if (table.shape.tie_embeddings) head.buckets.insert(head.buckets.begin(), embedding);
  program.operations.push_back(std::move(head));
  return program;
}

std::vector<int> pull_rounds(const ModelProgram& program, const link::Rounds& rounds) {
  std::vector<int> result;
  for (const Operation& operation : program.operations) {
    int last = -1;
    for (const int bucket : operation.buckets) last = std::max(last, rounds.round_of(bucket));
    result.push_back(last);
  }
  return result;
}

std::vector<base::Interval> parts_by_round(base::Interval run, const std::vector<int>& pull_rounds) {
  std::vector<base::Interval> parts;
  int largest = -1;
  for (int64_t position = run.begin; position < run.end; ++position) {
    const int round = pull_rounds[static_cast<size_t>(position)];
    if (parts.empty() || round > largest) parts.push_back({position, position});
    parts.back().end = position + 1;
    largest = std::max(largest, round);
  }
  return parts;
}

}  // namespace sluice::graph
