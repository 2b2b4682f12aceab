#include "graph/waiting_rows.h"

#include <algorithm>
#include <map>

namespace sluice::graph {

namespace {

// The numbers of a pass's first forward on a stage and of its last cell.
struct CellsOfPass {
  int first = 0;
  int last = 0;
};

}  // namespace

WaitingRows::WaitingRows(const StepGraph& graph, const LaneOrder& order, int stage) {
  const std::vector<int>& cells = order.nodes(stage, Stream::kCompute);
  std::map<int, CellsOfPass> of_pass;
  for (int number = 0; number < static_cast<int>(cells.size()); ++number) {
    const int pass = graph.node(cells[static_cast<size_t>(number)]).cell().pass;
    of_pass.try_emplace(pass, CellsOfPass{number, number}).first->second.last = number;
  }
  for (const int id : order.nodes(stage, Stream::kActivation)) {
    const Transfer& transfer = graph.node(id).transfer();
    if (!receives(graph.node(id), stage)) continue;
    arrivals_.push_back({transfer.pass, order.ended_before(id, stage, Stream::kCompute),
                         of_pass.at(transfer.pass).first, order.ended_before(id, stage, Stream::kGradient)});
  }
  const std::vector<int>& gradients = order.nodes(stage, Stream::kGradient);
  int until = 0;  // ascends with the transfers
  for (int number = 0; number < static_cast<int>(gradients.size()); ++number) {
    const Node& node = graph.node(gradients[static_cast<size_t>(number)]);
    if (receives(node, stage)) continue;
    while (until < static_cast<int>(cells.size()) &&
           order.ended_before(cells[static_cast<size_t>(until)], stage, Stream::kGradient) <= number)
      ++until;
    const int pass = node.transfer().pass;
    departures_.push_back({pass, of_pass.at(pass).last + 1, until, number});
  }
}

int64_t WaitingRows::most_bytes(int cell, const std::function<int64_t(int)>& bytes_of) const {
  const auto waits = [&](const auto& rows) { return rows.first <= cell && cell < rows.end; };
  // Gradients that must have left before rows arrive never wait beside them.
  const auto beside = [&](int sent_before) {
    int64_t bytes = 0;
    for (const Departure& gone : departures_) {
      if (waits(gone) && gone.number >= sent_before) bytes += bytes_of(gone.pass);
    }
    return bytes;
  };
  int64_t most = beside(0), arrived = 0;
  for (const Arrival& come : arrivals_) {
    if (!waits(come)) continue;
    arrived += bytes_of(come.pass);
    most = std::max(most, arrived + beside(come.sent_before));
  }
  return most;
}

}  // namespace sluice::graph
