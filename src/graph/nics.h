// The clock's model of shared network adapters (NICs): simultaneous traffic between nodes slows down.
//
// A round of pull or push occupies each NIC, sending and receiving, for a
// share of the round's time: the NIC's bytes over the busiest NIC's. A stage
// transfer occupies the NICs of its pairs between nodes for its whole time.
//   Transfer: While rounds occupy one of its NICs, it gets half of that NIC. If R is left of the rounds and
//             its duration is d, it ends min(d, R) later, and the rounds become that much longer.
//   Round:    It starts on each NIC after earlier rounds and running transfers there, and ends when the
//             last NIC is done.
// An event's end is fixed once the event has started: later events don't slow it, except
// that a round passes its lost time on to the next round. Stage transfers don't slow each
// other, because planning's score counts each alone; TP groups on one NIC share it in
// their price (cost::CostModel::transfer_ns). Rings inside cells are not slowed either.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/step_graph.h"

namespace sluice::graph {

class Nics {
 public:
  // `graph` must outlive this.
  explicit Nics(const StepGraph& graph);

  // The end of a node that starts at start_ns. REQUIRES: calls in ascending order of start_ns.
  int64_t end_ns(const Node& node, int64_t start_ns);

 private:
  // One NIC in one direction.
  struct Side {
    int64_t rounds_until_ns = 0;     // end of the rounds' traffic, at full speed
    int64_t transfers_until_ns = 0;  // end of the last running transfer
  };
  bool crosses(const Transfer& transfer) const;
  // The sides that a transfer occupies, each once.
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
