#include "strategy/fsdp_runs.h"

#include <algorithm>
#include <numeric>

namespace sluice::strategy {
namespace {

// Stretches of neighbours on one node.
struct Stretches {
  size_t shortest = 0;
  size_t count = 0;
};

Stretches stretches_of(const std::vector<int>& nodes) {
  Stretches found{.shortest = nodes.size()};
  for (size_t begin = 0, end = 0; begin < nodes.size(); begin = end, ++found.count) {
    while (end < nodes.size() && nodes[end] == nodes[begin]) ++end;
    found.shortest = std::min(found.shortest, end - begin);
  }
  return found;
}

bool run_crosses_nodes(const std::vector<int>& nodes, int run) {
  for (size_t member = 0; member < nodes.size(); ++member) {
    if (nodes[member] != nodes[member / static_cast<size_t>(run) * static_cast<size_t>(run)]) return true;
  }
  return false;
}

}  // namespace

int fsdp_run_lanes(const Scheme& scheme, const Topology& topology) {
  return std::gcd(scheme.fsdp, topology.lanes_of_node(scheme.tp));
}

// The ranks of a share group ascend, so those on one node are neighbours.
FsdpRuns fsdp_runs(const Pipeline& pipeline, int stage, const Topology& topology) {
  const Scheme& scheme = pipeline.scheme;
  FsdpRuns runs{scheme.fsdp, scheme.fsdp};
  if (scheme.fsdp == 1) return runs;
  const int several = fsdp_run_lanes(scheme, topology);
  for (int lane = 0; lane < scheme.cp; lane += scheme.fsdp) {
    for (int t = 0; t < scheme.tp; ++t) {
      const std::vector<int> ranks = pipeline.fsdp_group(stage, lane, t);
      std::vector<int> nodes;
      for (const int rank : ranks) {
        nodes.push_back(topology.node_of(rank));
        runs.level = std::max(runs.level, topology.level_of(ranks.front(), rank));
      }
      const Stretches of_nodes = stretches_of(nodes);
      if (of_nodes.count == 1) continue;
      runs.lanes_in_node = std::min(runs.lanes_in_node, static_cast<int>(of_nodes.shortest));
      runs.lanes = std::min(runs.lanes, run_crosses_nodes(nodes, several) ? 1 : several);
    }
  }
  return runs;
}

FsdpRuns fsdp_runs(const Scheme& scheme, const Topology& topology) {
  Scheme stage = scheme;
  stage.pp = 1;
  Pipeline pipeline{stage, std::vector<int>(static_cast<size_t>(stage.ranks()))};
  std::iota(pipeline.ranks.begin(), pipeline.ranks.end(), 0);
  return fsdp_runs(pipeline, 0, topology);
}

}  // namespace sluice::strategy
