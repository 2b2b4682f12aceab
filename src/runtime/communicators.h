// Every communicator a run will need, all made at start-up: none is made later.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/counted_waits.h"
#include "comm/transport.h"
#include "graph/node.h"
#include "runtime/waits.h"
#include "strategy/strategy.h"

namespace sluice::runtime {

// How many blocks the kernels of some communicators may take on a GPU, by name
// (transport/device_transport.h): those that wait for peers while computation goes on. Stage transfers have
// whole cells to hide behind; lanes and links move more, between nodes as fast as a network card, within one
// as NVLink.
std::map<std::string, int> most_blocks();

class Communicators {
 public:
  // Collective over all ranks: one communicator for each distinct TP group and share group over all
  // candidates, and the world's: stage transfers in each direction, exchanges of lanes, link levels, control.
  // `control` moves host memory; it may be `transport` itself where that does.
  Communicators(comm::Transport& transport, comm::Transport& control,
                const std::vector<strategy::Strategy>& candidates);

  comm::Communicator& activation() { return *activation_; }  // stage s -> s+1
  comm::Communicator& gradient() { return *gradient_; }      // stage s+1 -> s
  // Between lanes; null when no candidate has pipelines of several. And for what is under way between nodes
  // while other rows go round inside them.
  comm::Communicator* lanes() { return lanes_.get(); }
  comm::Communicator* lanes_between_nodes() { return lanes_between_nodes_.get(); }
  comm::Communicator& link_inter() { return *link_inter_; }
  comm::Communicator& link_intra() { return *link_intra_; }
  comm::Communicator& control() { return *control_; }  // scalars of the step graph
  // The communicator of a TP group that this rank belongs to; null for a group of one.
  comm::Communicator* tensor_parallel(const std::vector<int>& ranks);
  // Of the ranks that share a shard, this one among them. REQUIRES: two at least.
  comm::Communicator& fsdp(const std::vector<int>& ranks);
  // What cells have waited for others inside, of kLanes, kShare and kTensor, where transports wait at all.
  Waits waits() const;
  // Whom the last operation of a stream between cells waited for longest; −1: nobody, or transports don't
  // say. On the stream's thread.
  int awaited_rank(graph::Stream stream) const;

 private:
  // Each is one thread's.
  using Clock = std::shared_ptr<comm::WaitClock>;
  static Clock clock() { return std::make_shared<comm::WaitClock>(); }
  const Clock lane_waits_ = clock();
  const Clock share_waits_ = clock();
  const Clock tensor_waits_ = clock();
  std::map<graph::Stream, Clock> between_cells_;  // of transfers, link rounds and scalars
  std::unique_ptr<comm::Communicator> activation_;
  std::unique_ptr<comm::Communicator> gradient_;
  std::unique_ptr<comm::Communicator> lanes_;
  std::unique_ptr<comm::Communicator> lanes_between_nodes_;
  std::unique_ptr<comm::Communicator> link_inter_;
  std::unique_ptr<comm::Communicator> link_intra_;
  std::unique_ptr<comm::Communicator> control_;
  using ByRanks = std::map<std::vector<int>, std::unique_ptr<comm::Communicator>>;
  ByRanks tensor_parallel_;
  ByRanks share_;
};

}  // namespace sluice::runtime
