#include "graph/clock.h"

#include <algorithm>
#include <queue>

#include "base/error.h"
#include "base/text.h"

namespace sluice::graph {

namespace {

// A node whose dependencies have ended. `start_ns` is a lower bound that is raised when it is looked at.
struct Ready {
  int64_t start_ns = 0;
  int64_t ready_ns = 0;
  int id = 0;
  auto operator<=>(const Ready&) const = default;
};

// The nodes that wait for each node, as one array.
struct Dependents {
  std::vector<int> begin;
  std::vector<int> ids;

  explicit Dependents(const std::vector<Node>& nodes) : begin(nodes.size() + 1, 0) {
    for (const Node& node : nodes) {
      for (const int on : node.dependencies) ++begin[static_cast<size_t>(on) + 1];
    }
    for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
    ids.resize(static_cast<size_t>(begin.back()));
    std::vector<int> next = begin;
    for (const Node& node : nodes) {
      for (const int on : node.dependencies) {
        ids[static_cast<size_t>(next[static_cast<size_t>(on)]++)] = node.id;
      }
    }
  }
};

// When each stream of each rank is free.
class Streams {
 public:
  explicit Streams(int ranks) : free_ns_(static_cast<size_t>(ranks) * kStreams, 0) {}
  int64_t free_on_all(const Node& node) const {
    int64_t free = 0;
    for (const int rank : node.members) free = std::max(free, free_ns_[at(rank, node)]);
    return free;
  }
  void occupy(const Node& node) {
    for (const int rank : node.members) free_ns_[at(rank, node)] = node.end_ns;
  }

 private:
  static size_t at(int rank, const Node& node) {
    return static_cast<size_t>(rank) * kStreams + static_cast<size_t>(stream_of(node.kind));
  }
  std::vector<int64_t> free_ns_;
};

}  // namespace

void run_clock(StepGraph& graph) {
  const Dependents dependents(graph.nodes);
  Streams streams(graph.world_size);
  std::vector<int> missing;
  std::vector<int64_t> ready_ns(graph.nodes.size(), 0);
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  for (const Node& node : graph.nodes) {
    missing.push_back(static_cast<int>(node.dependencies.size()));
    if (node.dependencies.empty()) ready.push({0, 0, node.id});
  }
  graph.programs.assign(static_cast<size_t>(graph.world_size), {});
  graph.makespan_ns = 0;
  int64_t committed = 0;
  while (!ready.empty()) {
    Ready next = ready.top();
    ready.pop();
    Node& node = graph.nodes[static_cast<size_t>(next.id)];
    const int64_t start_ns = std::max(next.ready_ns, streams.free_on_all(node));
    if (start_ns > next.start_ns && !ready.empty() && ready.top() < Ready{start_ns, next.ready_ns, next.id}) {
      ready.push({start_ns, next.ready_ns, next.id});
      continue;
    }
    node.seq = committed++;
    node.start_ns = start_ns;
    node.end_ns = start_ns + node.duration_ns;
    streams.occupy(node);
    graph.makespan_ns = std::max(graph.makespan_ns, node.end_ns);
    for (const int rank : node.members) graph.programs[static_cast<size_t>(rank)].push_back(node.id);
    const auto id = static_cast<size_t>(next.id);
    for (int i = dependents.begin[id]; i < dependents.begin[id + 1]; ++i) {
      const auto dependent = static_cast<size_t>(dependents.ids[static_cast<size_t>(i)]);
      ready_ns[dependent] = std::max(ready_ns[dependent], node.end_ns);
      if (--missing[dependent] == 0)
        ready.push({ready_ns[dependent], ready_ns[dependent], static_cast<int>(dependent)});
    }
  }
  SLUICE_ASSERT(committed == static_cast<int64_t>(graph.nodes.size()),
                base::text(static_cast<int64_t>(graph.nodes.size()) - committed,
                           " nodes of the graph wait for each other in a cycle"));
}

}  // namespace sluice::graph
