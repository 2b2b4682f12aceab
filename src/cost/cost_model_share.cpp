// What lanes that share parameters pay for it: gathers, sums of gradients, and the window of operations at
// work.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cost/cost_model.h"
#include "cost/parameter_counts.h"

namespace sluice::cost {
namespace {

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// An operation's parameters, those that it shares with another among them.
int64_t elements_at(const model::Program& program, const MemoryModel& memory, int64_t position, int tp) {
  int64_t elements = 0;
  for (const int bucket : program.at(position).buckets)
    elements += bucket_elements(program, memory, bucket, tp);
  return elements;
}

// The operations of a cell, in its order, as runs that are alike.
std::vector<base::Interval> runs_of(const model::Program& program, CellKind kind, base::Interval run) {
  if (kind != CellKind::kForward) run.end = std::min(run.end, program.head());
  if (kind == CellKind::kBackwardWeight) run = program.blocks_in(run);
  std::vector<base::Interval> runs;
  for (int64_t position = run.begin; position < run.end; ++position) {
    const bool alike = position > run.begin && program.at(position).kind == program.at(position - 1).kind &&
                       gathers(program, kind, position) == gathers(program, kind, position - 1);
    if (!alike) runs.push_back({position, position});
    runs.back().end = position + 1;
  }
  if (kind != CellKind::kForward) std::ranges::reverse(runs);
  return runs;
}

}  // namespace

bool gathers(const model::Program& program, CellKind kind, int64_t position) {
  if (kind == CellKind::kForward) return true;
  if (kind == CellKind::kBackwardWeight) return false;
  return position != program.embedding() && !stays_at_hand(program, position);
}

bool sums_gradients(const model::Program& program, CellKind kind, int64_t position) {
  if (kind == CellKind::kForward) return position == program.head();
  if (kind == CellKind::kBackwardInput) return position == program.embedding();
  return position != program.head();
}

bool stays_at_hand(const model::Program& program, int64_t position) { return position + 1 == program.head(); }

// Gathers go round all lanes of a group, so each node takes what it lacks in once, over all adapters of its
// lanes. Gradients go straight to the lane that sums them. The embedding's are the last of a pass: what it
// takes besides is counted there, where nothing hides it.
std::vector<CostModel::ShareTimes> CostModel::share_times(const strategy::Scheme& scheme,
                                                          int lanes_in_node) const {
  std::vector<ShareTimes> by_kind(program().kinds().size());
  const int64_t share = scheme.share;
  if (share == 1) return by_kind;
  SLUICE_ASSERT(lanes_in_node >= 1 && lanes_in_node <= share,
                base::text(lanes_in_node, " lanes of a share group of ", share, " in a node"));
  const int64_t away = share - lanes_in_node;
  const int64_t ranks_in_node = int64_t{lanes_in_node} * scheme.tp;
  const int64_t nics = std::max<int64_t>(1, ranks_in_node / options_.gpus_per_nic);
  const int64_t sharers = std::min<int64_t>(ranks_in_node, options_.gpus_per_nic);
  int last_kind = -1;
  for (int64_t position = 0; position < program().size(); ++position) {
    if (program().at(position).kind == last_kind) continue;
    last_kind = program().at(position).kind;
    const int64_t part = divide_up(elements_at(program(), options_.memory, position, scheme.tp), share);
    const int64_t gathered = part * options_.memory.element_bytes;
    const int64_t summed = part * options_.memory.reduced_bytes();
    ShareTimes& times = by_kind[static_cast<size_t>(last_kind)];
    const auto round_ns = [&](int64_t part_bytes) {
      const int64_t inside_ns = options_.intra.of_bytes((share - 1) * part_bytes);
      const int64_t taken_in = divide_up(away * part_bytes * scheme.tp, nics);
      return away == 0 ? inside_ns : std::max(inside_ns, options_.inter.of_bytes(taken_in));
    };
    const auto straight_ns = [&](int64_t part_bytes) {
      const int64_t inside_ns = options_.intra.of_bytes((lanes_in_node - 1) * part_bytes);
      return away == 0 ? inside_ns
                       : std::max(inside_ns, options_.inter.of_bytes(away * part_bytes * sharers));
    };
    const ShareTraits& traits = options_.share_traits;
    times = {traits.keeps_gathered ? 0 : round_ns(gathered),
             traits.sums_in_ring ? round_ns(summed) : straight_ns(summed)};
    if (away > 0 && position == program().embedding()) times.scatter_ns += traits.pass_ns;
  }
  return by_kind;
}

// The ends of the model take their own time; blocks have the rest, as their own times say.
std::vector<SharedOperations> CostModel::pass_operations(CellKind kind, base::Interval run,
                                                         const strategy::Scheme& scheme,
                                                         const std::vector<ShareTimes>& share,
                                                         const Work& work, int64_t compute_ns) const {
  std::vector<SharedOperations> operations;
  Wide blocks_alone_ns = 0;
  int64_t blocks_ns = compute_ns;
  const std::vector<base::Interval> runs = runs_of(program(), kind, run);
  const auto is_end = [&](base::Interval of) { return program().blocks_in(of).empty(); };
  for (const base::Interval of : runs) {
    const ShareTimes& times = share[static_cast<size_t>(program().at(of.begin).kind)];
    const int64_t alone_ns = cell_ns(scheme, kind, of, work);
    operations.push_back({of.size(), is_end(of) ? std::min(alone_ns, blocks_ns) : alone_ns,
                          gathers(program(), kind, of.begin) ? times.gather_ns : 0,
                          sums_gradients(program(), kind, of.begin) ? times.scatter_ns : 0});
    if (is_end(of)) {
      blocks_ns -= operations.back().compute_ns;
    } else {
      blocks_alone_ns += alone_ns;
    }
  }
  Wide until_alone_ns = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (is_end(runs[i])) continue;
    const Wide whole = std::max<Wide>(1, blocks_alone_ns);
    const Wide before = until_alone_ns == 0 ? 0 : blocks_ns * until_alone_ns / whole;
    until_alone_ns += operations[i].compute_ns;
    const Wide after =
        until_alone_ns == blocks_alone_ns ? Wide{blocks_ns} : blocks_ns * until_alone_ns / whole;
    operations[i].compute_ns = static_cast<int64_t>(after - before);
  }
  return operations;
}

int64_t CostModel::window_bytes(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const {
  if (scheme.share == 1) return 0;
  const MemoryModel& memory = options_.memory;
  struct AtHand {
    int64_t parameters = 0;
    int64_t made = 0;    // gradients
    int64_t summed = 0;  // of these
  };
  const bool forward = kind == CellKind::kForward;
  std::vector<AtHand> operations;  // of equal ones three show all neighbours that there are
  int64_t kept = 0;                // behind its operation, which the head follows
  for (const base::Interval of : runs_of(program(), kind, run)) {
    const int64_t elements = elements_at(program(), memory, of.begin, scheme.tp);
    const bool needs = gathers(program(), kind, of.begin) ||
                       (kind != CellKind::kBackwardWeight && stays_at_hand(program(), of.begin));
    const bool makes = forward ? of.begin == program().head() : true;
    const AtHand at_hand{needs ? elements : 0, makes ? elements : 0,
                         sums_gradients(program(), kind, of.begin) ? elements : 0};
    operations.insert(operations.end(), static_cast<size_t>(std::min<int64_t>(of.size(), 3)), at_hand);
    if (forward && stays_at_hand(program(), of.end - 1)) kept = elements;
  }
  const size_t last = operations.size();
  operations.insert(operations.end(), 2, {});  // behind the last one
  int64_t most = 0;
  for (size_t i = 0; i + 1 < operations.size(); ++i) {
    int64_t parameters =
        operations[i].parameters + operations[i + 1].parameters + (i + 1 >= last ? kept : 0);
    if (options_.share_traits.keeps_gathered) parameters = 0;
    const int64_t travelling = i > 0 ? 2 * operations[i - 1].summed : 0;  // sent and received
    most = std::max(most, parameters * memory.element_bytes + operations[i].made * memory.accumulator_bytes +
                              travelling * memory.reduced_bytes());
  }
  return most;
}

}  // namespace sluice::cost
