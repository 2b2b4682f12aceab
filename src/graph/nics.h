// Network adapters (NICs) as the clock shares them: what is between nodes at the same time slows each other.
//
// A round of pull or push takes each NIC, sending and receiving, for its share of the round's time: the NIC's
// bytes over the busiest one's. A stage transfer takes the NICs of its pairs between nodes for its whole
// time.
//   transfer  While rounds hold one of its NICs it gets half of that NIC. With R left of the rounds and a
//             duration of d it ends min(d, R) later, and the rounds still owe what they lose by that.
//   round     It starts on each NIC behind what earlier rounds owe there and behind transfers under way,
//             and ends when the last NIC is done.
// The end of an event stands once it has started: an event is not slowed by one that starts later, except
// that a round hands what it lost to the next. Stage transfers do not slow each other, because planning's
// score counts each alone (TP groups on one NIC share it in their price, cost::CostModel::transfer_ns). Rings
// inside cells are not slowed either.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/step_graph.h"

namespace sluice::graph {

class Nics {
 public:
  // `graph` must outlive it.
  explicit Nics(const StepGraph& graph);

  // When the node ends that starts now. REQUIRES: calls in ascending order of start.
  int64_t end_ns(const Node& node, int64_t start_ns);

 private:
  // One NIC in one direction.
  struct Side {
    int64_t rounds_until_ns = 0;     // what rounds still have to move, at full speed
    int64_t transfers_until_ns = 0;  // the last transfer under way
  };
  bool crosses(const Transfer& transfer) const;
  // Of a transfer, each once.
  std::vector<Side*> sides_of(const Node& transfer);
  int64_t end_of_round(const Node& round, int64_t start_ns);
  int64_t end_of_transfer(const Node& transfer, int64_t start_ns);

  const StepGraph& graph_;
  std::vector<std::vector<char>> crosses_;  // by pipeline and boundary
  bool contended_ = false;                  // some boundary crosses nodes
  std::vector<Side> sending_;               // by NIC
  std::vector<Side> receiving_;
};

}  // namespace sluice::graph
