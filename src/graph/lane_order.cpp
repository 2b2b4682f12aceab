#include "graph/lane_order.h"

#include <algorithm>

namespace sluice::graph {

static_assert(static_cast<int>(Stream::kCompute) == 0 && static_cast<int>(Stream::kActivation) == 1 &&
              static_cast<int>(Stream::kGradient) == 2);

LaneOrder::LaneOrder(const StepGraph& graph, int pipeline, int lane) {
  const strategy::Pipeline& place = graph.plan.pipelines[static_cast<size_t>(pipeline)].pipeline;
  const int stages = place.scheme.pp;
  queues_.resize(static_cast<size_t>(stages) * kCounted);
  std::vector<int> all;
  for (int stage = 0; stage < stages; ++stage) {
    for (const int id : graph.programs[static_cast<size_t>(place.rank_of(stage, lane, /*t=*/0))]) {
      const NodeKind kind = graph.node(id).kind;
      if (is_compute_cell(kind) || is_transfer(kind)) all.push_back(id);
    }
  }
  const auto seq = [&](int id) { return graph.node(id).seq; };
  std::ranges::sort(all, {}, seq);
  all.erase(std::ranges::unique(all).begin(), all.end());
  std::vector<Clock> last(queues_.size(), Clock(queues_.size(), 0));  // by stage and stream
  for (const int id : all) add(graph, graph.node(id), last);
}

void LaneOrder::join(Clock& clock, const Known& node, Stream stream) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], node.before[i]);
  for (size_t i = 0; i < node.number.size(); ++i) {
    int& count = clock[at(node.stage + static_cast<int>(i), stream)];
    count = std::max(count, node.number[i] + 1);
  }
}

void LaneOrder::join_own(const StepGraph& graph, const std::vector<int>& nodes, int stage,
                         Clock& clock) const {
  for (const int id : nodes) {
    const auto found = known_.find(id);
    if (found == known_.end()) continue;
    const auto members = static_cast<int>(found->second.number.size());
    if (found->second.stage <= stage && stage < found->second.stage + members)
      join(clock, found->second, stream_of(graph.node(id).kind));
  }
}

void LaneOrder::add(const StepGraph& graph, const Node& node, std::vector<Clock>& last) {
  const Stream stream = stream_of(node.kind);
  Known own{.before = Clock(queues_.size(), 0), .stage = node.at()->stage, .number = {}};
  for (int stage = own.stage; stage <= own.stage + (is_transfer(node.kind) ? 1 : 0); ++stage) {
    const Clock& before = last[at(stage, stream)];
    for (size_t i = 0; i < before.size(); ++i) own.before[i] = std::max(own.before[i], before[i]);
    join_own(graph, node.dependencies, stage, own.before);
    if (node.kind == NodeKind::kSendActivation && receives(node, stage))
      join_own(graph, admissions_[node.at()->pass], stage, own.before);
    std::vector<int>& queue = queues_[at(stage, stream)];
    own.number.push_back(static_cast<int>(queue.size()));
    queue.push_back(node.id);
  }
  for (size_t i = 0; i < own.number.size(); ++i)
    join(last[at(own.stage + static_cast<int>(i), stream)], own, stream);
  if (node.kind == NodeKind::kForward && own.stage == 0)
    admissions_.try_emplace(node.at()->pass, node.dependencies);
  known_.emplace(node.id, std::move(own));
}

}  // namespace sluice::graph
