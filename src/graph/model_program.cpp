#include "graph/model_program.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::graph {

base::Interval at_work(const Program& program, cost::CellKind kind, base::Interval run) {
  switch (kind) {
    case cost::CellKind::kForward: return run;
    case cost::CellKind::kBackward:
    case cost::CellKind::kBackwardInput: return program.walked_back(run);
    case cost::CellKind::kBackwardWeight: return program.blocks_in(program.walked_back(run));
  }
  SLUICE_ASSERT(false, "unknown cell kind");
}

base::Interval gathered_by(cost::CellKind kind, base::Interval run, base::Interval whole) {
  if (kind == cost::CellKind::kBackwardWeight) return {run.begin, run.begin};
  if (kind == cost::CellKind::kForward) return {run.begin, std::min(run.end + 1, whole.end)};
  return {std::max(run.begin - 1, whole.begin), run.end};
}

base::Interval summed_by(cost::CellKind kind, base::Interval run, base::Interval whole, int behind) {
  const int64_t ahead = kind == cost::CellKind::kForward ? -behind : behind;
  const auto moved = [&](int64_t end) {
    return end == whole.begin || end == whole.end ? end : std::clamp(end + ahead, whole.begin, whole.end);
  };
  return {moved(run.begin), moved(run.end)};
}

bool writes_gradient(const Program& program, cost::CellKind kind, int64_t position) {
  if (position == program.head()) return kind == cost::CellKind::kForward;
  if (position == program.embedding()) {
    return kind == cost::CellKind::kBackward || kind == cost::CellKind::kBackwardInput;
  }
  return kind == cost::CellKind::kBackward || kind == cost::CellKind::kBackwardWeight;
}

std::vector<int> pull_rounds(const Program& program, const link::Rounds& rounds) {
  std::vector<int> result;
  for (int64_t position = 0; position < program.size(); ++position) {
    int last = -1;
    for (const int bucket : program.at(position).buckets) last = std::max(last, rounds.round_of(bucket));
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
