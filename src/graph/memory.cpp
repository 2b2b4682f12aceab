#include "graph/memory.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::graph {

namespace {

// REQUIRES: is_compute_cell(kind).
cost::CellKind cell_kind(NodeKind kind) {
  switch (kind) {
    case NodeKind::kBackward: return cost::CellKind::kBackward;
    case NodeKind::kBackwardInput: return cost::CellKind::kBackwardInput;
    case NodeKind::kBackwardWeight: return cost::CellKind::kBackwardWeight;
    default: return cost::CellKind::kForward;
  }
}

// Bytes of activations that a rank takes and gives back around a cell, by pipeline and policy.
class Activations {
 public:
  Activations(const strategy::Scheme& scheme, const cost::CostModel& cost)
      : scheme_(scheme),
        cost_(cost),
        kept_(cost.kept_bytes_per_token_layer(scheme)),
        deferred_(cost.deferred_bytes_per_token_layer(scheme)),
        recomputed_(cost.recomputed_bytes_per_token(scheme)),
        boundary_(cost.boundary_bytes_per_token(scheme)) {}

  // When it starts. A layer's forward waits until two layers before have been offloaded.
  int64_t taken(const Node& node) const {
    if (node.kind == NodeKind::kForward) {
      return node.tokens * (node.layers.size() * kept_ + boundary_of(node)) -
             layers_behind(node) * cost_.offloaded_bytes(scheme_, node.tokens);
    }
    if (node.kind == NodeKind::kBackwardInput) return node.tokens * node.layers.size() * deferred_;
    if (node.kind == NodeKind::kBackward) return node.tokens * recomputed_;
    return 0;
  }

  // While it runs, beside what it takes and what is there.
  int64_t working(const Node& node) const {
    using End = cost::CostModel::CellPart::End;
    return cost_.working_bytes(scheme_, cell_kind(node.kind),
                               {.layers = node.layers.size(), .end = node.head ? End::kHead : End::kNone},
                               node.tokens, node.lanes);
  }

  // Once it has ended. Behind a layer's backward the layer two before may come back.
  int64_t returned(const Node& node) const {
    const int64_t kept = node.layers.size() * kept_ + boundary_of(node);
    if (node.kind == NodeKind::kBackward) {
      return node.tokens * (kept + recomputed_) -
             layers_behind(node) * cost_.offloaded_bytes(scheme_, node.tokens);
    }
    if (node.kind == NodeKind::kBackwardWeight) return node.tokens * (kept + node.layers.size() * deferred_);
    return 0;
  }

 private:
  base::Interval stage_layers(const Node& node) const {
    return strategy::layers_of_stage(cost_.options().shape.layers, scheme_.pp, node.stage);
  }
  // The part with the stage's first layer carries the row that entered the stage.
  int64_t boundary_of(const Node& node) const {
    return node.layers.begin == stage_layers(node).begin && !node.layers.empty() ? boundary_ : 0;
  }
  // Of the node's layers, those that another one of the stage precedes by as many as stay on the device.
  int64_t layers_behind(const Node& node) const {
    const int64_t first = stage_layers(node).begin + cost::kLayersThatStay;
    return std::max<int64_t>(0, node.layers.end - std::max(node.layers.begin, first));
  }

  strategy::Scheme scheme_;
  cost::CostModel cost_;
  int64_t kept_ = 0;        // a token and layer
  int64_t deferred_ = 0;    // a token and layer
  int64_t recomputed_ = 0;  // a token
  int64_t boundary_ = 0;    // a token
};

// Activations of every micro-batch of a plan.
class PlannedActivations {
 public:
  PlannedActivations(const StepGraph& graph, const cost::CostModel& cost) : graph_(graph), cost_(cost) {}

  const Activations& of(const Node& node) {
    const strategy::PipelinePlan& pipeline = graph_.plan.pipelines[static_cast<size_t>(node.pipeline)];
    const strategy::MemoryPolicy& policy =
        schedule::policy_of(pipeline.units[static_cast<size_t>(node.unit)], cost_);
    const std::pair key(pipeline.pipeline.scheme, policy);
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    return known_.emplace(key, Activations(key.first, cost_.under(policy))).first->second;
  }

 private:
  const StepGraph& graph_;
  const cost::CostModel& cost_;
  std::map<std::pair<strategy::Scheme, strategy::MemoryPolicy>, Activations> known_;
};

int64_t fixed_bytes(const StepGraph& graph, const cost::MemoryModel& memory, int rank) {
  const auto r = static_cast<size_t>(rank);
  return graph.links->held_elements[r] * (memory.element_bytes + memory.accumulator_bytes) +
         graph.links->owned_elements[r] * memory.owner_bytes_per_parameter;
}

// Calls visit(cell, bytes while it runs, bytes behind it) for the rank's cells in order.
template <typename Visit>
void for_each_cell(const StepGraph& graph, PlannedActivations& activations, int rank, int64_t fixed_bytes,
                   Visit visit) {
  int64_t bytes = fixed_bytes;
  for (const int id : graph.programs[static_cast<size_t>(rank)]) {
    const Node& node = graph.node(id);
    if (!is_compute_cell(node.kind)) continue;
    const Activations& of_cell = activations.of(node);
    if (graph.purpose == Purpose::kTrain) bytes += of_cell.taken(node);
    const int64_t during = bytes + of_cell.working(node);
    if (graph.purpose == Purpose::kTrain) bytes -= of_cell.returned(node);
    visit(node, during, bytes);
  }
}

}  // namespace

std::vector<RankMemory> predicted_memory(const StepGraph& graph, const cost::CostModel& cost) {
  PlannedActivations activations(graph, cost);
  std::vector<RankMemory> result;
  for (int rank = 0; rank < graph.world_size; ++rank) {
    RankMemory memory;
    memory.fixed_bytes = fixed_bytes(graph, cost.options().memory, rank);
    memory.peak_bytes = memory.fixed_bytes;
    for_each_cell(graph, activations, rank, memory.fixed_bytes,
                  [&](const Node& cell, int64_t during_bytes, int64_t) {
                    if (during_bytes <= memory.peak_bytes) return;
                    memory.peak_bytes = during_bytes;
                    memory.node = cell.id;
                  });
    result.push_back(memory);
  }
  return result;
}

std::vector<std::vector<MemoryUse>> memory_over_time(const StepGraph& graph, const cost::CostModel& cost,
                                                     const std::vector<int>& ranks) {
  PlannedActivations activations(graph, cost);
  std::vector<std::vector<MemoryUse>> result;
  for (const int rank : ranks) {
    const int64_t fixed = fixed_bytes(graph, cost.options().memory, rank);
    std::vector<MemoryUse>& uses = result.emplace_back(1, MemoryUse{0, fixed});
    const auto use = [&](int64_t time_ns, int64_t bytes) {
      if (bytes != uses.back().bytes) uses.push_back({time_ns, bytes});
    };
    for_each_cell(graph, activations, rank, fixed,
                  [&](const Node& cell, int64_t during_bytes, int64_t bytes_behind) {
                    use(cell.start_ns, during_bytes);
                    use(cell.end_ns, bytes_behind);
                  });
  }
  return result;
}

std::string memory_fault(const StepGraph& graph, const cost::CostModel& cost) {
  const int64_t capacity = cost.options().memory.device_bytes;
  if (capacity == 0) return "";
  const std::vector<RankMemory> memory = predicted_memory(graph, cost);
  const auto fullest = std::ranges::max_element(memory, {}, &RankMemory::peak_bytes);
  if (fullest == memory.end() || fullest->peak_bytes <= capacity) return "";
  const std::string where =
      fullest->node < 0 ? "" : base::text(" at '", label(graph.node(fullest->node)), "'");
  const auto bytes = [](int64_t value) { return base::human_bytes(static_cast<double>(value)); };
  return base::text("rank ", fullest - memory.begin(), " needs ", bytes(fullest->peak_bytes), where, " (",
                    bytes(fullest->fixed_bytes), " of it fixed), ", bytes(fullest->peak_bytes - capacity),
                    " more than the ", bytes(capacity),
                    " that a plan may use there: raise tp or pp, or shorten the longest micro-batch");
}

}  // namespace sluice::graph
