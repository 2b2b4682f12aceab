// The checks of links outside the schedule: pulls, pushes, and the step's end.
#include <algorithm>

#include "graph/verifier_checks.h"

namespace sluice::graph::verifier {

using base::Interval;

namespace {

// Rounds of one level must follow one another, each after its round of the level before.
void check_rounds(const Context& context, NodeKind first, NodeKind second, Faults& faults) {
  const bool pull = first == NodeKind::kPullInter;
  const bool two_levels = context.graph.links->has_inter();
  const NodeKind only = pull ? second : first;  // intra
  const int rounds = static_cast<int>(context.graph.links->rounds.buckets.size());
  int next_first = pull ? 0 : rounds - 1;
  int next_second = next_first;
  const int stride = pull ? 1 : -1;
  std::vector<int> of_first(static_cast<size_t>(rounds), -1);
  for (const int id : context.exchanges) {
    const Node& node = context.graph.node(id);
    if (node.kind != first && node.kind != second) continue;
    const bool is_first = node.kind == first;
    if (!two_levels && node.kind != only) return faults.add("'", label(node), "' on a single node");
    int& expected = is_first ? next_first : next_second;
    if (node.round() != expected) return faults.add("'", label(node), "' where round ", expected, " is due");
    expected += stride;
    if (static_cast<int>(node.members.size()) != context.graph.world_size) {
      faults.add("'", label(node), "' is not of all ranks");
    }
    if (is_first) of_first[static_cast<size_t>(node.round())] = id;
    if (!is_first && two_levels && !waits_for(node, of_first[static_cast<size_t>(node.round())])) {
      faults.add("'", label(node), "' does not wait for the level before it");
    }
  }
  const int end = pull ? rounds : -1;
  const bool first_done = next_first == end || (!two_levels && first != only);
  const bool second_done = next_second == end || (!two_levels && second != only);
  if (!first_done || !second_done) faults.add("some rounds of ", name_of(only), " are missing");
}

}  // namespace

// A rank's compute stream is a queue: a pull that an earlier cell waited for has arrived for later cells.
void check_pulls(const Context& context, Faults& faults) {
  faults.begin("pulls");
  check_rounds(context, NodeKind::kPullInter, NodeKind::kPullIntra, faults);
  const StepGraph& graph = context.graph;
  const std::vector<int> rounds = pull_rounds(context.program, graph.links->rounds);
  std::vector<int> arrived(static_cast<size_t>(graph.world_size), -1);
  for (const int id : context.cells) {
    const Node& node = graph.node(id);
    if (!is_compute_cell(node.kind)) continue;
    int waited = -1;
    for (const int on : node.dependencies) {
      if (graph.node(on).kind == NodeKind::kPullIntra) waited = std::max(waited, graph.node(on).round());
    }
    int needed = -1;
    const Interval run = context.gathered_by(node);
    for (int64_t at = run.begin; at < run.end; ++at)
      needed = std::max(needed, rounds[static_cast<size_t>(at)]);
    for (const int rank : node.members) {
      int& have = arrived[static_cast<size_t>(rank)];
      have = std::max(have, waited);
      if (have >= needed) continue;
      faults.add("'", label(node), "' uses parameters of round ", needed, " which rank ", rank,
                 " has not waited for");
    }
  }
}

// Pushes are a queue as well: cells that an earlier push waited for need no second
// wait. `seq` stands for the position in a rank's program, along which it ascends.
void check_pushes(const Context& context, Faults& faults) {
  const StepGraph& graph = context.graph;
  if (graph.purpose == Purpose::kEvaluate) return;
  faults.begin("pushes");
  check_rounds(context, NodeKind::kPushIntra, NodeKind::kPushInter, faults);
  const auto ranks = static_cast<size_t>(graph.world_size);
  const size_t rounds = graph.links->rounds.buckets.size();
  std::vector<int64_t> written(ranks * rounds, -1);  // by rank and round: seq of the last gradient
  std::vector<int64_t> covered(ranks, -1);           // by rank: seq of the last cell that a push waits for
  for (const int id : context.cells) {
    const Node& node = graph.node(id);
    if (!is_compute_cell(node.kind)) continue;
    const Interval run = context.summed_by(node);
    for (int64_t at = run.begin; at < run.end; ++at) {
      if (!writes_gradient(context.program, node.cell_kind(), at)) continue;
      for (const int bucket : context.program.at(at).buckets) {
        const auto round = static_cast<size_t>(graph.links->round_of_bucket[static_cast<size_t>(bucket)]);
        for (const int rank : node.members) written[static_cast<size_t>(rank) * rounds + round] = node.seq;
      }
    }
  }
  for (const int id : context.exchanges) {
    const Node& push = graph.node(id);
    if (push.kind != NodeKind::kPushIntra) continue;
    for (const int on : push.dependencies) {
      const Node& cell = graph.node(on);
      if (!is_compute_cell(cell.kind)) continue;
      for (const int rank : cell.members) {
        int64_t& seq = covered[static_cast<size_t>(rank)];
        seq = std::max(seq, cell.seq);
      }
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (written[rank * rounds + static_cast<size_t>(push.round())] <= covered[rank]) continue;
      faults.add("'", label(push), "' does not wait for the last gradient on rank ", rank);
    }
  }
}

// The step ends with one reduction after all pushes (or all losses), then every rank's Update.
void check_end(const Context& context, Faults& faults) {
  faults.begin("end");
  const StepGraph& graph = context.graph;
  const bool train = graph.purpose == Purpose::kTrain;
  int last_push = -1;
  int scalars = -1;
  std::vector<int> updates(static_cast<size_t>(graph.world_size), 0);
  for (const int id : context.exchanges) {
    const Node& node = graph.node(id);
    if (is_push(node.kind)) last_push = id;
    if (node.kind == NodeKind::kReduceScalars) {
      if (scalars >= 0) faults.add("scalars are reduced twice");
      scalars = id;
      if (train && !waits_for(node, last_push)) faults.add("scalars do not wait for the last push");
    }
    if (node.kind != NodeKind::kUpdate) continue;
    if (!train || scalars < 0 || !waits_for(node, scalars))
      faults.add("'", label(node), "' does not wait for the scalars");
    for (const int rank : node.members) ++updates[static_cast<size_t>(rank)];
  }
  for (const int id : context.cells) {
    const Node& node = graph.node(id);
    const bool makes_loss = is_compute_cell(node.kind) && node.cell().head;
    if (!makes_loss || scalars < 0 || node.seq < graph.node(scalars).seq) continue;
    faults.add("'", label(node), "' makes a loss behind the scalars");
  }
  if (scalars < 0) faults.add("no scalars are reduced");
  for (size_t rank = 0; train && rank < updates.size(); ++rank) {
    if (updates[rank] != 1) faults.add("rank ", rank, " updates ", updates[rank], " times");
  }
}

}  // namespace sluice::graph::verifier
