// Every communicator that a run will need, all made at start-up: none is made later.
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
// (transport/device_transport.h). These kernels wait for peers while computation goes on. Stage transfers
// have whole cells to hide behind. Lanes and links move more: between nodes at the speed of a network card,
// within a node at NVLink's.
std::map<std::string, int> most_blocks();

class Communicators {
 public:
  // Collective over all ranks. Makes one communicator for each distinct TP group and share group of all
  // candidates, and the world's: stage transfers in each direction, exchanges of lanes, link levels, control.
  // `control` moves host memory; it may be `transport` itself if that moves host memory.
  Communicators(comm::Transport& transport, comm::Transport& control,
                const std::vector<strategy::Strategy>& candidates);

  comm::Communicator& activation() { return *activation_; }  // stage s -> s+1
  comm::Communicator& gradient() { return *gradient_; }      // stage s+1 -> s
  // Between lanes; null when no candidate has pipelines of several lanes. The second carries rows between
  // nodes while other rows go round inside nodes.
  comm::Communicator* lanes() { return lanes_.get(); }
  comm::Communicator* lanes_between_nodes() { return lanes_between_nodes_.get(); }
  comm::Communicator& link_inter() { return *link_inter_; }
  comm::Communicator& link_intra() { return *link_intra_; }
  comm::Communicator& control() { return *control_; }  // scalars of the step graph
  // The communicator of a TP group that this rank belongs to; null for a group of one.
  comm::Communicator* tensor_parallel(const std::vector<int>& ranks);
  // Joins the ranks that share a shard, this rank among them. REQUIRES: at least two ranks.
  comm::Communicator& fsdp(const std::vector<int>& ranks);
  // How long cells waited inside for other ranks: kLanes, kFsdp and kTensor.
  Waits waits() const;
  // The clocks behind waits().
  std::vector<comm::WaitClock*> cell_clocks() const {
    return {lane_waits_.get(), share_waits_.get(), tensor_waits_.get()};
  }
  // The rank that the last operation of a stream between cells waited for longest; −1: none, or the transport
  // does not know. Call on the stream's thread.
  int awaited_rank(graph::Stream stream) const;

 private:
  // Each clock belongs to one thread.
  using Clock = std::shared_ptr<comm::WaitClock>;
  static Clock clock() { return std::make_shared<comm::WaitClock>(); }
  const Clock lane_waits_ = clock();
  const Clock share_waits_ = clock();
  const Clock tensor_waits_ = clock();
  std::map<graph::Stream, Clock> between_cells_;  // clocks of transfers, link rounds and scalars
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
