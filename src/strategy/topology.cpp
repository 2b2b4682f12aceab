#include "strategy/topology.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::strategy {

Topology::Topology(int node_ranks, int nic_ranks, std::vector<int> group_ranks)
    : node_ranks_(node_ranks), nic_ranks_(nic_ranks), group_ranks_(std::move(group_ranks)) {
  const std::string fault = topology_fault(node_ranks_, group_ranks_);
  SLUICE_ASSERT(fault.empty() && nic_ranks_ >= 1, fault);
}

int Topology::nic_of(int rank) const {
  const int of_node = (node_ranks_ + nic_ranks_ - 1) / nic_ranks_;
  return node_of(rank) * of_node + rank % node_ranks_ / nic_ranks_;
}

int Topology::group_of(int rank, int level) const {
  if (level == 0) return node_of(rank);
  const auto group = static_cast<size_t>(level - 1);
  return group < group_ranks_.size() ? rank / group_ranks_[group] : 0;
}

int Topology::level_of(int a, int b) const {
  int level = 0;
  while (group_of(a, level) != group_of(b, level)) ++level;
  return level;
}

int Topology::level_of_first(int ranks) const { return level_of(0, ranks - 1); }

int Topology::level_between_nodes(int ranks) const { return std::max(1, level_of_first(ranks)); }

int Topology::level_of_any(int ranks) const {
  if (node_ranks_ % ranks == 0) return 0;
  const auto holds = std::ranges::find_if(group_ranks_, [&](int group) { return group % ranks == 0; });
  return static_cast<int>(holds - group_ranks_.begin()) + 1;
}

std::string topology_fault(int node_ranks, std::span<const int> group_ranks) {
  if (node_ranks < 1) return base::text("nodes of ", node_ranks, " ranks: give 1 or more");
  int before = node_ranks;
  for (const int ranks : group_ranks) {
    if (ranks <= before || ranks % before != 0) {
      return base::text("groups of ", ranks, " ranks are not several whole ones of ", before,
                        ": give a multiple of it");
    }
    before = ranks;
  }
  return "";
}

int StageLanes::level_of(int first_lane, int lanes) const {
  const auto behind = level.begin() + first_lane + 1;
  return lanes == 1 ? 0 : *std::max_element(behind, behind + lanes - 1);
}

StageLanes stage_lanes(const Pipeline& pipeline, int stage, const Topology& topology) {
  std::map<std::vector<int>, int> numbers;  // by the nodes of a lane's TP ranks
  StageLanes lanes;
  for (int lane = 0; lane < pipeline.scheme.cp; ++lane) {
    std::vector<int> nodes;
    int level = 0;
    for (int t = 0; t < pipeline.scheme.tp; ++t) {
      const int rank = pipeline.rank_of(stage, lane, t);
      nodes.push_back(topology.node_of(rank));
      if (lane > 0) level = std::max(level, topology.level_of(rank, pipeline.rank_of(stage, lane - 1, t)));
    }
    lanes.node.push_back(numbers.emplace(std::move(nodes), static_cast<int>(numbers.size())).first->second);
    lanes.level.push_back(level);
  }
  return lanes;
}

int boundary_level(const Pipeline& pipeline, int stage, const Topology& topology) {
  int level = 0;
  for (int lane = 0; lane < pipeline.scheme.cp; ++lane) {
    for (int t = 0; t < pipeline.scheme.tp; ++t) {
      level = std::max(
          level, topology.level_of(pipeline.rank_of(stage, lane, t), pipeline.rank_of(stage + 1, lane, t)));
    }
  }
  return level;
}

}  // namespace sluice::strategy
