#include "graph/step_times.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/error.h"

namespace sluice::graph {
namespace {

// A node's position in a rank's program; −1 if the rank is no member. O(log nodes).
int position_of(const StepGraph& graph, int rank, int node) {
  const std::vector<int>& program = graph.programs[static_cast<size_t>(rank)];
  const auto seq_of = [&](int id) { return graph.node(id).seq; };
  const auto found = std::ranges::lower_bound(program, graph.node(node).seq, {}, seq_of);
  return found == program.end() || *found != node ? -1 : static_cast<int>(found - program.begin());
}

const NodeTime& time_of(const StepGraph& graph, const StepTimes& times, int rank, int node) {
  return times[static_cast<size_t>(rank)][static_cast<size_t>(position_of(graph, rank, node))];
}

bool is_member(const Node& node, int rank) { return std::ranges::binary_search(node.members, rank); }

int scalars_of(const StepGraph& graph) {
  const auto found = std::ranges::find(graph.nodes, NodeKind::kReduceScalars, &Node::kind);
  SLUICE_ASSERT(found != graph.nodes.end(), "every step sums scalars");
  return found->id;
}

// By position in a rank's program: the previous node of the same stream; −1: none.
std::vector<int> before_on_stream(const StepGraph& graph, size_t rank) {
  std::array<int, kStreams> last;
  last.fill(-1);
  std::vector<int> before;
  for (const int id : graph.programs[rank])
    before.push_back(std::exchange(last[static_cast<size_t>(stream_of(graph.node(id).kind))], id));
  return before;
}

}  // namespace

StepTimes planned_times(const StepGraph& graph) {
  StepTimes times(graph.programs.size());
  for (int rank = 0; rank < graph.world_size; ++rank) {
    const std::vector<int>& program = graph.programs[static_cast<size_t>(rank)];
    const std::vector<int> before = before_on_stream(graph, static_cast<size_t>(rank));
    for (size_t at = 0; at < before.size(); ++at) {
      const Node& node = graph.node(program[at]);
      int64_t reached_ns = before[at] < 0 ? 0 : graph.node(before[at]).end_ns;
      for (const int dependency : node.dependencies) {
        const Node& awaited = graph.node(dependency);
        if (is_member(awaited, rank)) reached_ns = std::max(reached_ns, awaited.end_ns);
      }
      times[static_cast<size_t>(rank)].push_back({reached_ns, node.end_ns, 0});
    }
  }
  return times;
}

StepTimes times_in(const StepGraph& graph, const Reality& reality) {
  StepTimes times(graph.programs.size());
  std::vector<int64_t> end_ns(graph.nodes.size(), 0);
  std::vector<std::array<int64_t, kStreams>> free_ns(graph.programs.size());
  for (size_t rank = 0; rank < free_ns.size(); ++rank) free_ns[rank].fill(reality.begin_ns[rank]);
  struct Member {
    int64_t reached_ns = 0;
    int64_t took_ns = 0;
  };
  std::vector<Member> members;
  for (const int id : graph.in_order()) {
    const Node& node = graph.node(id);
    const auto stream = static_cast<size_t>(stream_of(node.kind));
    const bool cell = is_compute_cell(node.kind), local = cell || node.kind == NodeKind::kUpdate;
    const int64_t exchanges_ns = cell ? node.cell().cp_exchange_ns + node.cell().fsdp_ns : 0;
    int64_t start_ns = 0, longest_ns = 0;
    members.clear();
    for (const int rank : node.members) {
      const auto r = static_cast<size_t>(rank);
      Member& member = members.emplace_back(Member{free_ns[r][stream], 0});
      for (const int dependency : node.dependencies) {
        if (is_member(graph.node(dependency), rank))
          member.reached_ns = std::max(member.reached_ns, end_ns[static_cast<size_t>(dependency)]);
      }
      const double own_ns = static_cast<double>(node.duration_ns - exchanges_ns);
      member.took_ns = static_cast<int64_t>(own_ns * (local ? reality.slowdown[r] : reality.link[r])) +
                       static_cast<int64_t>(static_cast<double>(exchanges_ns) * reality.link[r]);
      start_ns = std::max(start_ns, member.reached_ns);
      longest_ns = std::max(longest_ns, member.took_ns);
    }
    const int64_t ended_ns = start_ns + longest_ns;
    end_ns[static_cast<size_t>(id)] = ended_ns;
    for (size_t m = 0; m < members.size(); ++m) {
      const auto rank = static_cast<size_t>(node.members[m]);
      const int64_t waited_ns = ended_ns - members[m].reached_ns - members[m].took_ns;
      times[rank].push_back({members[m].reached_ns, ended_ns, waited_ns});
      free_ns[rank][stream] = ended_ns;
    }
  }
  return times;
}

void align(const StepGraph& graph, StepTimes& times) {
  const int scalars = scalars_of(graph);
  int64_t latest_ns = 0;
  for (int rank = 0; rank < graph.world_size; ++rank)
    latest_ns = std::max(latest_ns, time_of(graph, times, rank, scalars).end_ns);
  for (int rank = 0; rank < graph.world_size; ++rank) {
    const int64_t later_ns = latest_ns - time_of(graph, times, rank, scalars).end_ns;
    for (NodeTime& time : times[static_cast<size_t>(rank)]) {
      time.reached_ns += later_ns;
      time.end_ns += later_ns;
    }
  }
}

namespace {

// The waits of ranks' compute streams between cells, at nodes with several members.
class Stalls {
 public:
  Stalls(const StepGraph& graph, const StepTimes& times) : graph_(graph), times_(times) {}

  // Calls use(rank, node, from_ns, until_ns) for each stretch of a node in which the rank's computing
  // stood still: before a cell the node that it waits for, then that node's own predecessor.
  template <typename Use>
  void for_each(Use use) const {
    for (int rank = 0; rank < graph_.world_size; ++rank) {
      const std::vector<int>& program = graph_.programs[static_cast<size_t>(rank)];
      int64_t free_ns = 0;
      for (size_t at = 0; at < program.size(); ++at) {
        const Node& node = graph_.node(program[at]);
        if (stream_of(node.kind) != Stream::kCompute) continue;
        const NodeTime& own = times_[static_cast<size_t>(rank)][at];
        walk_back(rank, node, free_ns, own.reached_ns, use);
        free_ns = own.end_ns;
      }
    }
  }

 private:
  template <typename Use>
  void walk_back(int rank, const Node& behind, int64_t from_ns, int64_t until_ns, Use use) const {
    for (const Node* node = &behind; until_ns > from_ns;) {
      const Node* awaited = last_before(rank, *node);
      if (awaited == nullptr || !meets(*awaited)) return;
      const NodeTime& own = time_of(graph_, times_, rank, awaited->id);
      until_ns = std::min(until_ns, own.end_ns);
      const int64_t began_ns = std::max(from_ns, own.reached_ns);
      if (began_ns < until_ns) use(rank, *awaited, began_ns, until_ns);
      until_ns = std::min(until_ns, began_ns);
      node = awaited;
    }
  }

  static bool meets(const Node& node) { return !is_compute_cell(node.kind) && node.members.size() > 1; }

  // The last to end of its dependencies on this rank and, unless
  // the node is a compute cell, the node before it on its stream.
  const Node* last_before(int rank, const Node& node) const {
    const Node* last = nullptr;
    const auto consider = [&](const Node& other) {
      if (last == nullptr ||
          time_of(graph_, times_, rank, other.id).end_ns > time_of(graph_, times_, rank, last->id).end_ns)
        last = &other;
    };
    for (const int dependency : node.dependencies) {
      if (is_member(graph_.node(dependency), rank)) consider(graph_.node(dependency));
    }
    const Stream stream = stream_of(node.kind);
    if (stream == Stream::kCompute) return last;
    const std::vector<int>& program = graph_.programs[static_cast<size_t>(rank)];
    for (int at = position_of(graph_, rank, node.id) - 1; at >= 0; --at) {
      const Node& before = graph_.node(program[static_cast<size_t>(at)]);
      if (stream_of(before.kind) != stream) continue;
      consider(before);
      break;
    }
    return last;
  }

  const StepGraph& graph_;
  const StepTimes& times_;
};

// The members that others wait for at a node: `last` until start_ns, then `mover`.
struct Meeting {
  int last = -1;
  int mover = -1;
  int64_t start_ns = 0;
};

Meeting meeting_at(const StepGraph& graph, const StepTimes& times, const Node& node) {
  Meeting found;
  int64_t least_waited_ns = 0;
  bool told = false;
  for (const int rank : node.members) {
    const NodeTime& own = time_of(graph, times, rank, node.id);
    if (found.last < 0 || own.reached_ns > found.start_ns) {
      found.last = rank;
      found.start_ns = own.reached_ns;
    }
    const int64_t took_ns = own.end_ns - own.reached_ns - own.waited_ns;
    if (found.mover < 0 || took_ns > least_waited_ns) {
      found.mover = rank;
      least_waited_ns = took_ns;
    }
    told = told || own.waited_ns > 0;
  }
  if (!told) found.mover = found.last;
  return found;
}

}  // namespace

std::vector<int64_t> awaited_ns(const StepGraph& graph, const StepTimes& times) {
  std::vector<std::map<int, int64_t>> waited_for(times.size());
  std::map<int, Meeting> meetings;
  const auto meeting_of = [&](const Node& node) -> const Meeting& {
    const auto [found, is_new] = meetings.try_emplace(node.id);
    if (is_new) found->second = meeting_at(graph, times, node);
    return found->second;
  };
  Stalls(graph, times).for_each([&](int rank, const Node& node, int64_t from_ns, int64_t until_ns) {
    const Meeting& meeting = meeting_of(node);
    const int other = node.members[node.members.front() == rank ? 1 : 0];
    const auto wait = [&](int on, int64_t ns) {
      if (ns > 0) waited_for[static_cast<size_t>(rank)][on == rank ? other : on] += ns;
    };
    wait(meeting.last, std::min(until_ns, meeting.start_ns) - from_ns);
    wait(meeting.mover, until_ns - std::max(from_ns, meeting.start_ns));
  });
  std::vector<int64_t> awaited(times.size(), 0);
  for (const std::map<int, int64_t>& own : waited_for) {
    if (own.empty()) continue;
    const auto most = std::ranges::max_element(own, {}, &std::pair<const int, int64_t>::second);
    awaited[static_cast<size_t>(most->first)] += most->second;
  }
  for (int64_t& sum : awaited) sum /= std::max<int64_t>(1, std::ssize(times) - 1);
  return awaited;
}

std::vector<int64_t> planned_awaited_ns(const StepGraph& graph) {
  const StepTimes times = planned_times(graph);
  std::vector<int64_t> awaited(times.size(), 0);
  Stalls(graph, times).for_each([&](int rank, const Node& node, int64_t from_ns, int64_t until_ns) {
    const int64_t moves_ns = node.end_ns - node.start_ns;
    for (const int other : node.members) {
      if (other == rank) continue;
      const int64_t late_ns = time_of(graph, times, other, node.id).reached_ns - from_ns;
      awaited[static_cast<size_t>(other)] +=
          std::min(until_ns - from_ns, std::max<int64_t>(0, late_ns) + moves_ns);
    }
  });
  for (int64_t& sum : awaited) sum /= std::max<int64_t>(1, std::ssize(awaited) - 1);
  return awaited;
}

const char* name_of(PathKind kind) {
  switch (kind) {
    case PathKind::kCompute: return "compute";
    case PathKind::kPull: return "pull";
    case PathKind::kPush: return "push";
    case PathKind::kStage: return "stage";
    case PathKind::kCopy: return "copy";
    case PathKind::kScalars: return "scalars";
    case PathKind::kUpdate: return "update";
    case PathKind::kHost: return "host";
  }
  SLUICE_ASSERT(false, "unknown kind of path");
}

PathKind path_kind(NodeKind kind) {
  if (is_compute_cell(kind)) return PathKind::kCompute;
  if (is_pull(kind)) return PathKind::kPull;
  if (is_push(kind)) return PathKind::kPush;
  if (is_transfer(kind)) return PathKind::kStage;
  if (is_copy(kind)) return PathKind::kCopy;
  return kind == NodeKind::kUpdate ? PathKind::kUpdate : PathKind::kScalars;
}

namespace {

// A walk from the end of a step to its beginning.
class Walk {
 public:
  Walk(const StepGraph& graph, const StepTimes& times) : graph_(graph), times_(times) {
    for (size_t rank = 0; rank < times.size(); ++rank) before_.push_back(before_on_stream(graph, rank));
  }

  std::vector<PathPiece> run() {
    auto [rank, node] = last();
    int64_t until_ns = node < 0 ? 0 : time(rank, node).end_ns;
    while (node >= 0) {
      rank = runs_for(node);
      // Ranks' end times of one node may differ by message delays.
      const int64_t begin_ns = std::clamp<int64_t>(time(rank, node).reached_ns, 0, until_ns);
      add(rank, node, begin_ns, until_ns);
      node = before(rank, node);
      until_ns = begin_ns;
      if (node < 0) break;
      const int64_t ended_ns = std::clamp<int64_t>(time(rank, node).end_ns, 0, begin_ns);
      add(rank, -1, ended_ns, begin_ns);
      until_ns = ended_ns;
    }
    add(rank, -1, 0, until_ns);
    std::ranges::reverse(pieces_);
    return std::move(pieces_);
  }

 private:
  const NodeTime& time(int rank, int node) const { return time_of(graph_, times_, rank, node); }

  std::pair<int, int> last() const {
    std::pair<int, int> found{0, -1};
    for (int rank = 0; rank < graph_.world_size; ++rank) {
      for (const int node : graph_.programs[static_cast<size_t>(rank)]) {
        if (found.second < 0 || time(rank, node).end_ns > time(found.first, found.second).end_ns)
          found = {rank, node};
      }
    }
    return found;
  }

  // The member that would have left last if no member had waited inside.
  int runs_for(int node) const {
    const bool cell = is_compute_cell(graph_.node(node).kind);
    return *std::ranges::max_element(graph_.node(node).members, {}, [&](int rank) {
      const NodeTime& own = time(rank, node);
      return cell ? own.end_ns - own.waited_ns : own.reached_ns;
    });
  }

  // The node that ended last among those that `node` waited for on `rank`.
  int before(int rank, int node) const {
    int latest = before_[static_cast<size_t>(rank)][static_cast<size_t>(position_of(graph_, rank, node))];
    for (const int dependency : graph_.node(node).dependencies) {
      if (!is_member(graph_.node(dependency), rank)) continue;
      if (latest < 0 || time(rank, dependency).end_ns > time(rank, latest).end_ns) latest = dependency;
    }
    return latest;
  }

  void add(int rank, int node, int64_t begin_ns, int64_t end_ns) {
    if (node < 0 && end_ns <= begin_ns) return;
    PathPiece piece{.rank = rank, .node = node, .begin_ns = begin_ns, .end_ns = end_ns};
    if (node >= 0) {
      piece.kind = path_kind(graph_.node(node).kind);
      piece.planned_ns = graph_.node(node).duration_ns;
    }
    pieces_.push_back(piece);
  }

  const StepGraph& graph_;
  const StepTimes& times_;
  std::vector<std::vector<int>> before_;
  std::vector<PathPiece> pieces_;
};

}  // namespace

std::vector<PathPiece> critical_path(const StepGraph& graph, const StepTimes& times) {
  return Walk(graph, times).run();
}

}  // namespace sluice::graph
