#include "cost/fsdp_cost.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "cost/parameter_counts.h"

namespace sluice::cost {

bool gathers(const model::Program& program, CellKind kind, int64_t position) {
  if (kind == CellKind::kForward) return true;
  if (kind == CellKind::kBackwardWeight) return false;
  return position != program.embedding() && !stays_at_hand(program, position);
}

bool sums_gradients(const model::Program& program, CellKind kind, int64_t position) {
  if (!program.trains(position)) return false;
  if (kind == CellKind::kForward) return position == program.head();
  if (kind == CellKind::kBackwardInput) return position == program.embedding();
  return position != program.head();
}

bool stays_at_hand(const model::Program& program, int64_t position) {
  return position + 1 == program.head() && position >= program.first_trained();
}

std::vector<base::Interval> alike_runs(const model::Program& program, CellKind kind, base::Interval run) {
  if (kind != CellKind::kForward) run = program.walked_back(run);
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

int last_pieces(const strategy::LevelCodecs& sums, int64_t part_elements) {
  constexpr int kPieces = 4;
  constexpr int64_t kLeastElements = 4096;  // in a piece
  const bool coded = sums.in_node != strategy::Codec::kNone || sums.between_nodes != strategy::Codec::kNone;
  return coded || part_elements < kPieces * kLeastElements ? 1 : kPieces;
}

FsdpCost::FsdpCost(const CostModel& cost, const strategy::Scheme& scheme, const strategy::FsdpRuns& runs)
    : cost_(cost), scheme_(scheme), by_kind_(cost.program().kinds().size()), last_by_kind_(by_kind_) {
  if (scheme.fsdp == 1) return;
  SLUICE_ASSERT(runs.lanes_in_node >= 1 && runs.lanes_in_node <= scheme.fsdp,
                base::text(runs.lanes_in_node, " lanes of an FSDP group of ", scheme.fsdp, " in a node"));
  SLUICE_ASSERT(runs.lanes >= 1 && scheme.fsdp % runs.lanes == 0,
                base::text("runs of ", runs.lanes, " lanes in an FSDP group of ", scheme.fsdp));
  const model::Program& program = cost.program();
  int last_kind = -1;
  for (int64_t position = 0; position < program.size(); ++position) {
    if (program.at(position).kind == last_kind) continue;
    last_kind = program.at(position).kind;
    by_kind_[static_cast<size_t>(last_kind)] = times_of(position, runs, /*last=*/false);
    last_by_kind_[static_cast<size_t>(last_kind)] = times_of(position, runs, /*last=*/true);
  }
}

const FsdpTimes& FsdpCost::at(int64_t position) const {
  return by_kind_[static_cast<size_t>(cost_.program().at(position).kind)];
}

namespace {

// Lanes that together hold parameters, and how they lie on nodes: lanes with the same place in expert groups,
// or all lanes of a share group.
struct Holders {
  int64_t count = 1;
  int64_t in_node = 1;
  int64_t run = 1;
};

}  // namespace

// All-gathers go round all lanes of a group, so each node receives what it lacks once, over all adapters of
// its lanes; each lane receives its own experts. In a run each lane sums its part of every run's parts, so it
// sends one part to another run. The embedding's gradients are the last of a pass, so a pass's extra time is
// counted there, where nothing hides it.
FsdpTimes FsdpCost::times_of(int64_t position, const strategy::FsdpRuns& runs, bool last) const {
  const CostModel::Options& options = cost_.options();
  const Execution& execution = *options.execution;
  const int64_t ranks_in_node = int64_t{runs.lanes_in_node} * scheme_.tp;
  const int64_t nics = std::max<int64_t>(1, ranks_in_node / options.topology.nic_ranks());
  const int64_t sharers = std::min<int64_t>(ranks_in_node, options.topology.nic_ranks());
  const auto between_nodes_ns = [&](int64_t bytes) {
    return bytes == 0 ? 0 : options.link(runs.level).of_bytes(bytes);
  };
  const auto round_ns = [&](const Holders& holders, int64_t part_bytes, int64_t takers) {
    const int64_t away = holders.count - holders.in_node;
    return std::max(options.intra.of_bytes((holders.count - 1) * part_bytes),
                    between_nodes_ns(divide_up(away * part_bytes * takers, nics)));
  };
  // The time of sending a part to one lane of each run of `lanes`.
  const auto straight_ns = [&](const Holders& holders, int64_t part_bytes, int64_t lanes) {
    const int64_t away = holders.count - holders.in_node;
    return std::max(options.intra.of_bytes((holders.in_node / lanes - 1) * part_bytes),
                    between_nodes_ns(divide_up(away, lanes) * part_bytes * sharers));
  };
  FsdpTimes times;
  const bool in_runs = runs.behind(scheme_.fsdp) == 2 && execution.sums_in_runs();
  const auto add = [&](const Holders& holders, const ParameterCount& count, int64_t takers) {
    if (holders.count == 1 || count.all == 0) return;
    const strategy::WireCodecs& codecs = options.codecs;
    const int64_t part = divide_up(count.all, holders.count), own = divide_up(count.trained, holders.count);
    const int64_t gathered = strategy::coded_bytes(codecs.gather, part, options.memory.element_bytes);
    const auto summed = [&](strategy::Codec codec) {
      return strategy::coded_bytes(codec, divide_up(own, times.pieces), options.memory.accumulator_bytes);
    };
    const int64_t in_node = summed(codecs.sums.in_node), between = summed(codecs.sums.between_nodes);
    if (execution.gathers_in_passes()) {
      times.gather_ns += round_ns(holders, gathered, takers);
      times.code_gather_ns += cost_.code_ns(codecs.gather, (holders.count + 1) * part / 2);
    }
    if (in_runs && holders.run > 1) {
      times.scatter_ns += options.intra.of_bytes((holders.count - holders.count / holders.run) * in_node);
      times.between_ns += straight_ns(holders, between, holders.run);
      times.code_sum_ns +=
          cost_.code_ns(codecs.sums.in_node, (holders.count - holders.count / holders.run) * own) +
          cost_.code_ns(codecs.sums.between_nodes, (holders.count / holders.run - 1) * own);
    } else {
      const bool straight = holders.run == 1 && runs.lanes < scheme_.fsdp;
      const int64_t sent = straight ? between : in_node;
      times.scatter_ns +=
          execution.sums_in_runs() ? straight_ns(holders, sent, 1) : round_ns(holders, sent, takers);
      times.code_sum_ns += cost_.code_ns(straight ? codecs.sums.between_nodes : codecs.sums.in_node,
                                         (holders.count - 1) * own);
    }
  };
  const OperationElements own = operation_elements(cost_.program(), options.memory, position, scheme_.tp);
  const int64_t experts = scheme_.ep;
  const bool divided = experts > 1;
  ParameterCount together = own.others;
  if (!divided) together = {own.others.all + own.experts.all, own.others.trained + own.experts.trained};
  if (last && in_runs && (!divided || own.experts.all == 0))
    times.pieces = last_pieces(options.codecs.sums, divide_up(together.trained, scheme_.fsdp));
  add({execution.parameter_holders(scheme_), runs.lanes_in_node, runs.lanes}, together, scheme_.tp);
  if (divided) {
    const int64_t in_node = std::max<int64_t>(1, runs.lanes_in_node / experts);
    add({scheme_.expert_fsdp(), in_node, runs.lanes % experts == 0 ? runs.lanes / experts : 1},
        {cost_.in_expert_slots(scheme_, own.experts.all),
         cost_.in_expert_slots(scheme_, own.experts.trained)},
        ranks_in_node);
  }
  if (scheme_.fsdp > runs.lanes_in_node && position == cost_.program().embedding())
    (in_runs ? times.between_ns : times.scatter_ns) += options.measured_pass_ns / times.pieces;
  return times;
}

// The ends of the model take their own time; blocks divide the rest in proportion to their own times.
std::vector<FsdpOperations> FsdpCost::operations(CellKind kind, base::Interval run, const Work& work,
                                                 int64_t compute_ns) const {
  const model::Program& program = cost_.program();
  std::vector<FsdpOperations> operations;
  Wide blocks_alone_ns = 0;
  int64_t blocks_ns = compute_ns;
  const std::vector<base::Interval> runs = alike_runs(program, kind, run);
  const auto is_end = [&](base::Interval of) { return program.blocks_in(of).empty(); };
  for (const base::Interval of : runs) {
    const FsdpTimes& times = at(of.begin);
    const int64_t alone_ns = cost_.cell_ns(scheme_, kind, of, work);
    const bool sums = sums_gradients(program, kind, of.begin);
    operations.push_back({of.size(), is_end(of) ? std::min(alone_ns, blocks_ns) : alone_ns,
                          gathers(program, kind, of.begin) ? times.gather_ns : 0, sums ? times.scatter_ns : 0,
                          sums ? times.between_ns : 0});
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
  for (size_t i = 0; i < runs.size(); ++i) {
    const FsdpTimes& times = at(runs[i].begin);
    operations[i].compute_ns += runs[i].size() * ((operations[i].gather_ns > 0 ? times.code_gather_ns : 0) +
                                                  (operations[i].scatter_ns > 0 ? times.code_sum_ns : 0));
  }
  if (runs.empty() || operations.back().between_ns == 0) return operations;
  const FsdpTimes& piece = last_by_kind_[static_cast<size_t>(program.at(runs.back().begin).kind)];
  if (piece.pieces == 1) return operations;
  FsdpOperations last = operations.back();
  FsdpOperations& others = operations.back();
  --others.count;
  others.compute_ns = last.compute_ns * others.count / last.count;
  last.compute_ns -= others.compute_ns;
  last.count = 1;
  last.scatter_ns = piece.scatter_ns;
  last.between_ns = piece.between_ns;
  operations.push_back(last);
  operations.push_back({piece.pieces - 1, 0, 0, piece.scatter_ns, piece.between_ns});
  return operations;
}

}  // namespace sluice::cost
