#include "graph/verifier.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "graph/memory.h"
#include "graph/verifier_checks.h"

namespace sluice::graph {

namespace verifier {

namespace {

bool strictly_ascending(const std::vector<int>& values) {
  return std::ranges::adjacent_find(values, std::greater_equal<>()) == values.end();
}

bool within(const std::vector<int>& ascending, int end) {
  return ascending.empty() || (ascending.front() >= 0 && ascending.back() < end);
}

// Numbers the sets of ranks that communicate, per stream.
class Communicators {
 public:
  // -1 for a node of one rank.
  int of(const Node& node) {
    if (node.members.size() < 2) return -1;
    const uint64_t hash = base::hash_bytes(node.members.data(), node.members.size() * sizeof(int));
    const auto key = std::pair(stream_of(node.kind), hash);
    return ids_.emplace(key, static_cast<int>(ids_.size())).first->second;
  }
  size_t size() const { return ids_.size(); }

 private:
  std::map<std::pair<Stream, uint64_t>, int> ids_;
};

}  // namespace

void check_shape(const StepGraph& graph, Faults& faults) {
  faults.begin("shape");
  const int nodes = static_cast<int>(graph.nodes.size());
  for (int i = 0; i < nodes; ++i) {
    const Node& node = graph.node(i);
    if (node.id != i) faults.add("node ", i, " has id ", node.id);
    if (node.members.empty()) faults.add("'", label(node), "' has no members");
    if (!strictly_ascending(node.members) || !within(node.members, graph.world_size)) {
      faults.add("members of '", label(node), "' are not distinct ascending ranks");
    }
    if (!strictly_ascending(node.dependencies) || !within(node.dependencies, nodes)) {
      faults.add("dependencies of '", label(node), "' are not distinct ascending nodes");
    }
    const PayloadKind payload = traits(node.kind).payload;
    if (node.payload.index() != static_cast<size_t>(payload)) {
      faults.add("node ", i, " of kind ", name_of(node.kind), " has the payload of another kind");
      continue;
    }
    const PassOnStage* at = node.at();
    if (at != nullptr &&
        (at->pipeline < 0 || at->pipeline >= static_cast<int>(graph.plan.pipelines.size()))) {
      faults.add("'", label(node), "' is in pipeline ", at->pipeline, ", which the plan has not");
    }
    const bool link = payload == PayloadKind::kLinkRound;
    if (link && (node.round() < 0 || node.round() >= static_cast<int>(graph.links->rounds.buckets.size()))) {
      faults.add("'", label(node), "' is of a round that the links have not");
    }
  }
  if (static_cast<int>(graph.programs.size()) != graph.world_size) {
    faults.add(graph.programs.size(), " programs for ", graph.world_size, " ranks");
  }
  for (size_t rank = 0; rank < graph.programs.size(); ++rank) {
    for (const int id : graph.programs[rank]) {
      if (id < 0 || id >= nodes) faults.add("the program of rank ", rank, " names node ", id);
    }
  }
}

void check_order(const StepGraph& graph, Faults& faults) {
  faults.begin("order");
  std::vector<char> taken(graph.nodes.size(), 0);
  for (const Node& node : graph.nodes) {
    const bool inside = node.seq >= 0 && node.seq < static_cast<int64_t>(taken.size());
    if (!inside || taken[static_cast<size_t>(node.seq)]++) {
      faults.add("'", label(node), "' has seq ", node.seq, ", which is no number of its own");
    }
    for (const int on : node.dependencies) {
      if (graph.node(on).seq < node.seq) continue;
      faults.add("'", label(node), "' (seq ", node.seq, ") waits for '", label(graph.node(on)), "' (seq ",
                 graph.node(on).seq, ")");
    }
  }
  for (size_t rank = 0; rank < graph.programs.size(); ++rank) {
    const std::vector<int>& program = graph.programs[rank];
    for (size_t i = 1; i < program.size(); ++i) {
      const Node& before = graph.node(program[i - 1]);
      const Node& after = graph.node(program[i]);
      if (before.seq < after.seq) continue;
      faults.add("rank ", rank, " runs '", label(before), "' (seq ", before.seq, ") before '", label(after),
                 "' (seq ", after.seq, ")");
    }
  }
}

// Ranks ascend here as among a node's members, so each rank must be the node's next member.
void check_membership(const StepGraph& graph, Faults& faults) {
  faults.begin("membership");
  std::vector<size_t> found(graph.nodes.size(), 0);
  for (size_t rank = 0; rank < graph.programs.size(); ++rank) {
    for (const int id : graph.programs[rank]) {
      const Node& node = graph.node(id);
      size_t& next = found[static_cast<size_t>(id)];
      if (next < node.members.size() && node.members[next] == static_cast<int>(rank)) {
        ++next;
        continue;
      }
      const bool is_member = std::ranges::binary_search(node.members, static_cast<int>(rank));
      faults.add("rank ", rank, " runs '", label(node),
                 is_member ? "' but not every member before it does" : "' but is no member of it");
    }
  }
  for (const Node& node : graph.nodes) {
    if (found[static_cast<size_t>(node.id)] == node.members.size()) continue;
    faults.add("'", label(node), "' has ", node.members.size(), " members but is in ",
               found[static_cast<size_t>(node.id)], " programs");
  }
}

void check_communicators(const StepGraph& graph, Faults& faults) {
  faults.begin("communicators");
  Communicators communicators;
  std::vector<int> of_node;
  for (const Node& node : graph.nodes) of_node.push_back(communicators.of(node));
  std::vector<int> turn(graph.nodes.size(), -1);  // by node: place in its communicator, on its first member
  std::vector<int> next(communicators.size(), 0);
  for (const std::vector<int>& program : graph.programs) {
    for (const int id : program) {
      const int communicator = of_node[static_cast<size_t>(id)];
      if (communicator < 0) continue;
      const int mine = next[static_cast<size_t>(communicator)]++;
      int& first = turn[static_cast<size_t>(id)];
      if (first < 0) first = mine;
      if (first != mine) {
        faults.add("rank ", &program - graph.programs.data(), " runs '", label(graph.node(id)),
                   "' as number ", mine, " of its communicator, others as number ", first);
      }
    }
    for (const int id : program) {
      if (of_node[static_cast<size_t>(id)] >= 0)
        next[static_cast<size_t>(of_node[static_cast<size_t>(id)])] = 0;
    }
  }
}

}  // namespace verifier

std::vector<std::string> faults(const StepGraph& graph, const model::ParameterTable& table,
                                const cost::CostModel& cost) {
  verifier::Faults found;
  verifier::check_shape(graph, found);
  if (found.empty()) verifier::check_order(graph, found);
  if (found.empty()) verifier::check_membership(graph, found);
  if (found.empty()) verifier::check_communicators(graph, found);
  if (!found.empty()) return found.take();
  const verifier::Context context(graph, table, cost);
  verifier::check_completeness(context, found);
  if (found.empty()) verifier::check_transfers(context, found);
  verifier::check_pulls(context, found);
  verifier::check_pushes(context, found);
  verifier::check_kept(context, found);
  verifier::check_credits(context, found);
  verifier::check_copies(context, found);
  verifier::check_end(context, found);
  return found.take();
}

void require_proved(const StepGraph& graph, const model::ParameterTable& table, const cost::CostModel& cost) {
  const std::vector<std::string> found = faults(graph, table, cost);
  SLUICE_ASSERT(found.empty(), base::text("the step graph is wrong: ", base::join(found, "; ")));
}

}  // namespace sluice::graph
