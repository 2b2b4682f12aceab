// How ranks lie on machines: neighbouring ranks fill nodes, and neighbouring nodes larger groups, as racks
// and pods are. Whoever asks which ranks share a node, or what links they meet over, asks it here.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "strategy/strategy.h"

namespace sluice::strategy {

// Ranks meet on levels: on 0 inside a node, on 1 between nodes of the smallest larger group, and so on; the
// last one, levels() − 1, is between groups of the largest kind. Where nothing but nodes is named there are
// two.
class Topology {
 public:
  // Nodes of so many ranks, of which so many neighbours share a network adapter (NIC), and by size the larger
  // groups' ranks. REQUIRES: topology_fault() is empty.
  // NOLINTNEXTLINE(google-explicit-constructor): a number says a machine that has nodes alone.
  Topology(int node_ranks = 8, int nic_ranks = 1, std::vector<int> group_ranks = {});

  int node_ranks() const { return node_ranks_; }
  int nic_ranks() const { return nic_ranks_; }
  const std::vector<int>& group_ranks() const { return group_ranks_; }
  // Adapters and groups as here, in nodes of so many ranks.
  Topology with_nodes_of(int node_ranks) const { return {node_ranks, nic_ranks_, group_ranks_}; }

  int node_of(int rank) const { return rank / node_ranks_; }
  bool same_node(int a, int b) const { return node_of(a) == node_of(b); }
  // Nodes that the first so many ranks lie on.
  int nodes_of(int ranks) const { return (ranks + node_ranks_ - 1) / node_ranks_; }
  // Adapters are numbered through all nodes.
  int nic_of(int rank) const;
  // Lanes of so many TP ranks that a node has room for, at least one.
  int lanes_of_node(int tp) const { return node_ranks_ > tp ? node_ranks_ / tp : 1; }

  int levels() const { return static_cast<int>(group_ranks_.size()) + 2; }
  int level_of(int a, int b) const;
  // On which so many ranks meet at best: as a group's first ones do.
  int level_of_first(int ranks) const;
  // The same of nodes: between two of them at least, though so many ranks may lie on one.
  int level_between_nodes(int ranks) const;
  // On which they meet wherever they lie, as long as such groups fill the machine one behind the other.
  int level_of_any(int ranks) const;
  // The number of the group that a rank lies in, of those that meet on a level.
  int group_of(int rank, int level) const;

  bool operator==(const Topology&) const = default;

 private:
  int node_ranks_ = 8;
  int nic_ranks_ = 1;
  std::vector<int> group_ranks_;
};

// Why there is no such topology, with the number and the way out, or "": counts are at least 1, and each
// group is of several whole ones of the kind before.
std::string topology_fault(int node_ranks, std::span<const int> group_ranks);

// How the lanes of a pipeline's stage lie, each by all of its TP ranks.
struct StageLanes {
  // By lane, a number for the nodes of its ranks: who has the same lies on the same.
  std::vector<int> node;
  // By lane, on what level it meets the lane before; of the first lane 0. A run of lanes meets on the highest
  // of those behind its first.
  std::vector<int> level;
  int level_of(int first_lane, int lanes) const;
  bool operator==(const StageLanes&) const = default;
};
StageLanes stage_lanes(const Pipeline& pipeline, int stage, const Topology& topology);

// On what level a stage's ranks meet those of the next one that have their lane and TP rank: the highest.
int boundary_level(const Pipeline& pipeline, int stage, const Topology& topology);

}  // namespace sluice::strategy
