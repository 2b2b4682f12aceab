#include "report/time_shares.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace sluice::report {

namespace {

using graph::Node;
using graph::NodeKind;
using graph::TraceRecord;

// A cell on one rank.
struct Span {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t ring_ns = 0;
  int64_t gather_ns = 0;
  int64_t pulled_ns = 0;  // when the parameters that it waits for are there
  int pipeline = 0;
};

struct RankSpans {
  std::vector<Span> cells;
  std::vector<std::pair<int64_t, int64_t>> updates;  // scalars and optimizer
};

struct StepSpans {
  std::vector<RankSpans> ranks;
  int64_t end_ns = 0;
};

// Adds the parts of one rank's time, each instant once.
class RankShares {
 public:
  explicit RankShares(TimeShares& shares) : shares_(shares) {}

  void add_cell(const Span& cell) {
    pass_until(std::min(cell.pulled_ns, cell.start_ns), shares_.pull_push_ns);
    pass_until(cell.start_ns, shares_.bubble_ns);
    const int64_t left_ns = std::max<int64_t>(0, cell.end_ns - at_ns_);
    const int64_t ring_ns = std::clamp<int64_t>(cell.ring_ns, 0, left_ns);
    const int64_t gather_ns = std::clamp<int64_t>(cell.gather_ns, 0, left_ns - ring_ns);
    pass_until(cell.end_ns - ring_ns - gather_ns, shares_.compute_ns);
    pass_until(cell.end_ns - gather_ns, shares_.cp_exchange_ns);
    pass_until(cell.end_ns, shares_.fsdp_ns);
  }
  void pass_until(int64_t time_ns, int64_t& share_ns) {
    if (time_ns <= at_ns_) return;
    share_ns += time_ns - at_ns_;
    at_ns_ = time_ns;
  }

 private:
  TimeShares& shares_;
  int64_t at_ns_ = 0;
};

void sort_by_time(RankSpans& rank) {
  std::ranges::stable_sort(rank.cells, {}, &Span::start_ns);
  std::ranges::sort(rank.updates);
}

TimeShares add_up(StepSpans& step) {
  std::map<int, int64_t> pipeline_end_ns;
  int64_t cells_end_ns = 0;
  for (const RankSpans& rank : step.ranks) {
    for (const Span& cell : rank.cells) {
      int64_t& end_ns = pipeline_end_ns[cell.pipeline];
      end_ns = std::max(end_ns, cell.end_ns);
      cells_end_ns = std::max(cells_end_ns, cell.end_ns);
    }
  }
  TimeShares shares;
  for (RankSpans& rank : step.ranks) {
    sort_by_time(rank);
    RankShares own(shares);
    for (const Span& cell : rank.cells) own.add_cell(cell);
    if (!rank.cells.empty()) own.pass_until(pipeline_end_ns[rank.cells.back().pipeline], shares.bubble_ns);
    own.pass_until(cells_end_ns, shares.idle_ns);
    bool updating = false;
    for (const auto& [start_ns, end_ns] : rank.updates) {
      own.pass_until(start_ns, updating ? shares.update_ns : shares.pull_push_ns);
      own.pass_until(end_ns, shares.update_ns);
      updating = true;
    }
    own.pass_until(step.end_ns, updating ? shares.idle_ns : shares.pull_push_ns);
  }
  return shares;
}

int64_t pulled_ns(const graph::StepGraph& graph, const Node& node) {
  int64_t pulled_ns = 0;
  for (const int id : node.dependencies) {
    if (graph::is_pull(graph.node(id).kind)) pulled_ns = std::max(pulled_ns, graph.node(id).end_ns);
  }
  return pulled_ns;
}

enum class Meaning : uint8_t { kOther, kCell, kPull, kUpdate };

Meaning meaning_of(const std::string& category) {
  for (const NodeKind kind :
       {NodeKind::kForward, NodeKind::kBackward, NodeKind::kBackwardInput, NodeKind::kBackwardWeight}) {
    if (category == graph::name_of(kind)) return Meaning::kCell;
  }
  for (const NodeKind kind : {NodeKind::kPullInter, NodeKind::kPullIntra}) {
    if (category == graph::name_of(kind)) return Meaning::kPull;
  }
  for (const NodeKind kind : {NodeKind::kReduceScalars, NodeKind::kUpdate}) {
    if (category == graph::name_of(kind)) return Meaning::kUpdate;
  }
  return Meaning::kOther;
}

int64_t argument(const TraceRecord& record, std::string_view name, int64_t otherwise) {
  for (const auto& [key, value] : record.arguments) {
    if (key == name) return value;
  }
  return otherwise;
}

// A predicted share, such as "cp_exchange_ns", of a cell whose time may differ from its prediction.
int64_t share_of(const TraceRecord& record, std::string_view name) {
  const int64_t share_ns = argument(record, name, 0);
  const int64_t predicted_ns = argument(record, "predicted_ns", 0);
  const int64_t took_ns = record.end_ns - record.start_ns;
  if (share_ns <= 0 || predicted_ns <= 0 || took_ns == predicted_ns) return share_ns;
  return static_cast<int64_t>(static_cast<__int128>(share_ns) * took_ns / predicted_ns);
}

}  // namespace

TimeShares& TimeShares::operator+=(const TimeShares& other) {
  compute_ns += other.compute_ns;
  cp_exchange_ns += other.cp_exchange_ns;
  fsdp_ns += other.fsdp_ns;
  pull_push_ns += other.pull_push_ns;
  update_ns += other.update_ns;
  bubble_ns += other.bubble_ns;
  idle_ns += other.idle_ns;
  strategy_switch_ns += other.strategy_switch_ns;
  return *this;
}

TimeShares time_shares(const graph::StepGraph& graph) {
  StepSpans step;
  step.ranks.resize(static_cast<size_t>(graph.world_size));
  for (const Node& node : graph.nodes) {
    step.end_ns = std::max(step.end_ns, node.end_ns);
    if (graph::is_compute_cell(node.kind)) {
      const graph::Cell& cell = node.cell();
      const Span span{node.start_ns,          node.end_ns,  cell.cp_exchange_ns, cell.fsdp_ns,
                      pulled_ns(graph, node), cell.pipeline};
      for (const int rank : node.members) step.ranks[static_cast<size_t>(rank)].cells.push_back(span);
    } else if (node.kind == NodeKind::kReduceScalars || node.kind == NodeKind::kUpdate) {
      for (const int rank : node.members)
        step.ranks[static_cast<size_t>(rank)].updates.emplace_back(node.start_ns, node.end_ns);
    }
  }
  return add_up(step);
}

TimeShares time_shares(const std::vector<TraceRecord>& records, int world_size) {
  StepSpans step;
  step.ranks.resize(static_cast<size_t>(world_size));
  std::vector<std::map<int64_t, int64_t>> pull_ends(step.ranks.size());  // by rank: seq -> end
  for (const TraceRecord& record : records) {
    SLUICE_ASSERT(record.rank >= 0 && record.rank < world_size,
                  base::text("rank ", record.rank, " of a timeline of ", world_size, " ranks"));
    if (meaning_of(record.category) == Meaning::kPull)
      pull_ends[static_cast<size_t>(record.rank)][argument(record, "seq", -1)] = record.end_ns;
  }
  for (const TraceRecord& record : records) {
    const auto r = static_cast<size_t>(record.rank);
    step.end_ns = std::max(step.end_ns, record.end_ns);
    const Meaning meaning = meaning_of(record.category);
    if (meaning == Meaning::kUpdate) step.ranks[r].updates.emplace_back(record.start_ns, record.end_ns);
    if (meaning != Meaning::kCell) continue;
    const auto pull = pull_ends[r].find(argument(record, "pull_seq", -1));
    step.ranks[r].cells.push_back({record.start_ns, record.end_ns, share_of(record, "cp_exchange_ns"),
                                   share_of(record, "fsdp_ns"), pull == pull_ends[r].end() ? 0 : pull->second,
                                   static_cast<int>(argument(record, "pipeline", 0))});
  }
  return add_up(step);
}

}  // namespace sluice::report
