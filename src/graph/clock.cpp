#include "graph/clock.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "graph/nics.h"

namespace sluice::graph {

namespace {

// A node whose dependencies have ended. `start_ns` is a lower bound, raised on inspection.
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

// The node fields that the loop needs, close together: nodes of 1,024 ranks fit no cache.
struct Event {
  std::span<const int> members;
  Stream stream = Stream::kCompute;
  int missing = 0;  // dependencies that have not ended
  int64_t ready_ns = 0;
};

std::vector<Event> events_of(const StepGraph& graph) {
  std::vector<Event> events;
  events.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    events.push_back({node.members, stream_of(node.kind), static_cast<int>(node.dependencies.size()), 0});
  }
  return events;
}

// When each stream of each rank is free. Ranks lie side by side, because an event's members are often
// neighbours.
class Streams {
 public:
  explicit Streams(int ranks)
      : ranks_(static_cast<size_t>(ranks)), free_ns_(ranks_ * static_cast<size_t>(kStreams), 0) {}
  int64_t free_on_all(const Event& event) const {
    const int64_t* const of_stream = free_ns_.data() + begin(event);
    int64_t free = 0;
    for (const int rank : event.members) free = std::max(free, of_stream[rank]);
    return free;
  }
  void occupy(const Event& event, int64_t until_ns) {
    int64_t* const of_stream = free_ns_.data() + begin(event);
    for (const int rank : event.members) of_stream[rank] = until_ns;
  }

 private:
  size_t begin(const Event& event) const { return static_cast<size_t>(event.stream) * ranks_; }
  size_t ranks_;
  std::vector<int64_t> free_ns_;
};

// Empty programs with room for all of their nodes.
std::vector<std::vector<int>> empty_programs(const StepGraph& graph) {
  std::vector<size_t> nodes(static_cast<size_t>(graph.world_size), 0);
  for (const Node& node : graph.nodes) {
    for (const int rank : node.members) ++nodes[static_cast<size_t>(rank)];
  }
  std::vector<std::vector<int>> programs(nodes.size());
  for (size_t rank = 0; rank < nodes.size(); ++rank) programs[rank].reserve(nodes[rank]);
  return programs;
}

}  // namespace

void run_clock(StepGraph& graph) {
  const Dependents dependents(graph.nodes);
  std::vector<Event> events = events_of(graph);
  Streams streams(graph.world_size);
  Nics nics(graph);
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  for (const Node& node : graph.nodes) {
    if (node.dependencies.empty()) ready.push({0, 0, node.id});
  }
  graph.programs = empty_programs(graph);
  graph.makespan_ns = 0;
  int64_t committed = 0;
  while (!ready.empty()) {
    const Ready next = ready.top();
    ready.pop();
    const auto id = static_cast<size_t>(next.id);
    const Event& event = events[id];
    const int64_t start_ns = std::max(next.ready_ns, streams.free_on_all(event));
    if (start_ns > next.start_ns && !ready.empty() && ready.top() < Ready{start_ns, next.ready_ns, next.id}) {
      ready.push({start_ns, next.ready_ns, next.id});
      continue;
    }
    Node& node = graph.nodes[id];
    const int64_t end_ns = nics.end_ns(node, start_ns);
    node.seq = committed++;
    node.start_ns = start_ns;
    node.end_ns = end_ns;
    streams.occupy(event, end_ns);
    graph.makespan_ns = std::max(graph.makespan_ns, end_ns);
    for (const int rank : event.members) graph.programs[static_cast<size_t>(rank)].push_back(next.id);
    for (int i = dependents.begin[id]; i < dependents.begin[id + 1]; ++i) {
      const int dependent = dependents.ids[static_cast<size_t>(i)];
      Event& waiting = events[static_cast<size_t>(dependent)];
      waiting.ready_ns = std::max(waiting.ready_ns, end_ns);
      if (--waiting.missing == 0) ready.push({waiting.ready_ns, waiting.ready_ns, dependent});
    }
  }
  SLUICE_ASSERT(committed == static_cast<int64_t>(graph.nodes.size()),
                base::text(static_cast<int64_t>(graph.nodes.size()) - committed,
                           " nodes of the graph wait for each other in a cycle"));
}

}  // namespace sluice::graph
