// How ranks lie on machines: neighbouring ranks fill nodes; neighbouring nodes form larger groups, as racks
// and pods are. All questions about shared nodes, NICs and levels of links are answered here.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "strategy/strategy.h"

namespace sluice::strategy {

// Ranks meet on levels: 0 inside a node, 1 between nodes of the smallest larger group, and so on. The
// last level, levels() − 1, is between groups of the largest kind. Without larger groups there are two
// levels.
class Topology {
 public:
  // Nodes of `node_ranks` ranks; `nic_ranks` neighbours share a network adapter (NIC); `group_ranks`: ranks
  // of each larger kind of group, by size. REQUIRES: topology_fault() is empty.
  // NOLINTNEXTLINE(google-explicit-constructor): a number describes a machine that has nodes alone.
  Topology(int node_ranks = 8, int nic_ranks = 1, std::vector<int> group_ranks = {});

  int node_ranks() const { return node_ranks_; }
  int nic_ranks() const { return nic_ranks_; }
  const std::vector<int>& group_ranks() const { return group_ranks_; }
  // The same adapters and groups, with nodes of `node_ranks` ranks.
  Topology with_nodes_of(int node_ranks) const { return {node_ranks, nic_ranks_, group_ranks_}; }

  int node_of(int rank) const { return rank / node_ranks_; }
  bool same_node(int a, int b) const { return node_of(a) == node_of(b); }
  // The number of nodes on which the first `ranks` ranks lie.
  int nodes_of(int ranks) const { return (ranks + node_ranks_ - 1) / node_ranks_; }
  // Adapters are numbered through all nodes.
  int nic_of(int rank) const;
  // The lanes of `tp` TP ranks for which a node has room, at least one.
  int lanes_of_node(int tp) const { return node_ranks_ > tp ? node_ranks_ / tp : 1; }

  int levels() const { return static_cast<int>(group_ranks_.size()) + 2; }
  int level_of(int a, int b) const;
  // The level on which the first `ranks` ranks of a group meet; other ranks may need a higher level.
  int level_of_first(int ranks) const;
  // The same if the ranks lie on at least two nodes, even though one node may have room for them.
  int level_between_nodes(int ranks) const;
  // The level that suffices for each group of `ranks` ranks, if such groups fill the machine in order.
  int level_of_any(int ranks) const;
  // The number of a rank's group among the groups whose ranks meet on `level`.
  int group_of(int rank, int level) const;

  bool operator==(const Topology&) const = default;

 private:
  int node_ranks_ = 8;
  int nic_ranks_ = 1;
  std::vector<int> group_ranks_;
};

// Says in words, with the number and a remedy, why no such topology exists; "" if counts are at least 1 and
// each group consists of several whole groups of the kind before.
std::string topology_fault(int node_ranks, std::span<const int> group_ranks);

// The nodes of a pipeline stage's lanes and the levels between them, over all of a lane's TP ranks.
struct StageLanes {
  // By lane, a number for the set of its ranks' nodes: lanes with equal numbers lie on the same nodes.
  std::vector<int> node;
  // By lane, the level on which it meets the lane before; 0 for the first lane. A run of lanes meets on the
  // highest level of its lanes but the first.
  std::vector<int> level;
  int level_of(int first_lane, int lanes) const;
  bool operator==(const StageLanes&) const = default;
};
StageLanes stage_lanes(const Pipeline& pipeline, int stage, const Topology& topology);

// The highest level on which a stage's rank meets the next stage's rank of the same lane and TP index.
int boundary_level(const Pipeline& pipeline, int stage, const Topology& topology);

}  // namespace sluice::strategy
