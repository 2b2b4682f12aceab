#include "runtime/local_program.h"

#include <algorithm>
#include <iterator>

#include "graph/lane_order.h"

namespace sluice::runtime {

LocalProgram::LocalProgram(const graph::StepGraph& graph, int rank)
    : graph_(graph), program_(graph.programs[static_cast<size_t>(rank)]), dependencies_(program_.size()) {
  std::vector<int> position(graph.nodes.size(), -1);
  for (int i = 0; i < size(); ++i) {
    position[static_cast<size_t>(node(i).id)] = i;
    queues_[static_cast<size_t>(stream(i))].push_back(i);
    for (const int dependency : node(i).dependencies) {
      const int where = position[static_cast<size_t>(dependency)];
      if (where >= 0) dependencies_[static_cast<size_t>(i)].push_back(where);
    }
  }
  bound_receives(rank, position);
}

// The sender runs other nodes of this rank before the transfer. A receive that waits for these takes memory
// no earlier than rows can come, so graph/waiting_rows.h bounds it, and it loses no time.
void LocalProgram::bound_receives(int rank, const std::vector<int>& position) {
  const strategy::Place place =
      strategy::places(graph_.plan.strategy(), graph_.world_size)[static_cast<size_t>(rank)];
  if (place.pipeline < 0) return;
  const auto pipeline = static_cast<size_t>(place.pipeline);
  if (graph_.plan.pipelines[pipeline].pipeline.scheme.pp == 1) return;
  const graph::LaneOrder order(graph_, place.pipeline, place.lane);
  for (int i = 0; i < size(); ++i) {
    if (!graph::is_transfer(node(i).kind) || !graph::receives(node(i), place.stage)) continue;
    for (const graph::Stream other :
         {graph::Stream::kCompute, graph::Stream::kActivation, graph::Stream::kGradient}) {
      const int ended = order.ended_before(node(i).id, place.stage, other);
      if (other == stream(i) || ended == 0) continue;
      const int last = order.nodes(place.stage, other)[static_cast<size_t>(ended) - 1];
      dependencies_[static_cast<size_t>(i)].push_back(position[static_cast<size_t>(last)]);
    }
  }
}

namespace {

WaitCause cause_of(graph::NodeKind kind) {
  if (graph::is_pull(kind)) return WaitCause::kPull;
  if (graph::is_push(kind)) return WaitCause::kPush;
  if (graph::is_transfer(kind)) return WaitCause::kStage;
  if (graph::is_copy(kind)) return WaitCause::kCopies;
  return WaitCause::kEnd;
}

}  // namespace

// When the last link round ended that `position` waits for, directly or through the scalars.
int64_t LocalProgram::link_ready_ns(const std::vector<Measurement>& measured, int position) const {
  int64_t ready_ns = 0;
  for (const int dependency : dependencies(position)) {
    if (stream(dependency) == graph::Stream::kLinkIntra || stream(dependency) == graph::Stream::kLinkInter) {
      ready_ns = std::max(ready_ns, measured[static_cast<size_t>(dependency)].end_ns);
    } else if (node(dependency).kind == graph::NodeKind::kReduceScalars) {
      ready_ns = std::max(ready_ns, link_ready_ns(measured, dependency));
    }
  }
  return ready_ns;
}

// The dependency that ended last among those that a node of another stream waited for, its stream's nodes
// included; −1: none.
int LocalProgram::last_before(const std::vector<Measurement>& measured, int position) const {
  int last = -1;
  const auto consider = [&](int other) {
    if (last < 0 || measured[static_cast<size_t>(other)].end_ns > measured[static_cast<size_t>(last)].end_ns)
      last = other;
  };
  for (const int dependency : dependencies(position)) consider(dependency);
  const std::vector<int>& own = queue(stream(position));
  const auto at = std::ranges::lower_bound(own, position);
  if (at != own.begin()) consider(*std::prev(at));
  return last;
}

// Attributes a stall from `from_ns` to `until_ns` at `position` to the ranks awaited, cause by cause.
void LocalProgram::add_awaited(const std::vector<Measurement>& measured, int position, int64_t from_ns,
                               int64_t until_ns, std::map<int, int64_t>& stalled_for) const {
  while (position >= 0 && until_ns > from_ns && stream(position) != graph::Stream::kCompute) {
    const Measurement& own = measured[static_cast<size_t>(position)];
    const int64_t began_ns = std::clamp(own.start_ns, from_ns, until_ns);
    if (own.awaited_rank >= 0) stalled_for[own.awaited_rank] += until_ns - began_ns;
    until_ns = began_ns;
    position = last_before(measured, position);
    if (position >= 0) until_ns = std::min(until_ns, measured[static_cast<size_t>(position)].end_ns);
  }
}

// Adds the compute stream's stall before `position`; the stream was free since `free_ns`.
void LocalProgram::add_stall(const std::vector<Measurement>& measured, int position, int64_t free_ns,
                             StepTiming& timing) const {
  int last = -1;
  int64_t ready_ns = free_ns;
  for (const int dependency : dependencies(position)) {
    const int64_t end_ns = measured[static_cast<size_t>(dependency)].end_ns;
    if (end_ns <= ready_ns) continue;
    ready_ns = end_ns;
    last = dependency;
  }
  if (last < 0) return;
  ready_ns = std::min(ready_ns, measured[static_cast<size_t>(position)].start_ns);
  add_awaited(measured, last, free_ns, ready_ns, timing.stalled_for);
  if (node(last).kind == graph::NodeKind::kReduceScalars) {
    const int64_t pushed_ns = std::clamp(link_ready_ns(measured, last), free_ns, ready_ns);
    timing.stalled[WaitCause::kPush] += pushed_ns - free_ns;
    free_ns = pushed_ns;
  }
  timing.stalled[cause_of(node(last).kind)] += ready_ns - free_ns;
}

StepTiming LocalProgram::timing(const std::vector<Measurement>& measured) const {
  StepTiming result;
  result.nodes = measured;
  for (const Measurement& measurement : measured) {
    result.step_ns = std::max(result.step_ns, measurement.end_ns);
  }
  int64_t free_ns = 0;
  for (const int position : queue(graph::Stream::kCompute)) {
    const Measurement& own = measured[static_cast<size_t>(position)];
    result.compute_ns += own.end_ns - own.start_ns;
    add_stall(measured, position, free_ns, result);
    result.pull_push_exposed_ns += std::max<int64_t>(0, link_ready_ns(measured, position) - free_ns);
    free_ns = own.end_ns;
  }
  result.stalled[WaitCause::kEnd] += result.step_ns - free_ns;
  return result;
}

}  // namespace sluice::runtime
