// When each rank reached and left its nodes, planned or measured, and what follows from that: who waited for
// whom, and which chain of nodes took the step's time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/step_graph.h"

namespace sluice::graph {

struct NodeTime {
  int64_t reached_ns = 0;  // by this rank: its stream was free and what it waits for was done
  int64_t end_ns = 0;
  int64_t waited_ns = 0;  // inside, for other members; 0 where that is not known
};
// By rank, then by position in its program, on one clock.
using StepTimes = std::vector<std::vector<NodeTime>>;

// As the clock has them. REQUIRES: it has run.
StepTimes planned_times(const StepGraph& graph);
// What differs from the plan, by rank.
struct Reality {
  std::vector<double> slowdown;   // of cells and updates: times their planned duration
  std::vector<double> link;       // of transfers and rounds, as slow as the slowest of their members
  std::vector<int64_t> begin_ns;  // when the rank enters the step
};
// As ranks run the graph, each stream in the order of its numbers, where durations are others. Members of a
// cell wait inside for the slowest. REQUIRES: the clock has run; a figure for each rank.
StepTimes times_in(const StepGraph& graph, const Reality& reality);
// Measured on clocks that began when each rank did: moves them so that all end their sums of scalars, which
// no rank leaves before all have reached them, at once.
void align(const StepGraph& graph, StepTimes& times);

// By rank: what others' computing waited for it between cells, each other rank counted for the one whom it
// waited for most, in the mean over the others. At a transfer or round a member waits for whoever reaches it
// last, then for whoever waits least inside; whoever that is, for one of the others.
std::vector<int64_t> awaited_ns(const StepGraph& graph, const StepTimes& times);
// By rank: the most of that which the plan explains: wherever others wait by plan, for each rank that is
// later than they are, whether or not a third one is later still.
std::vector<int64_t> planned_awaited_ns(const StepGraph& graph);

// What a stretch of the critical path was spent on; kHost: on none of the rank's nodes.
enum class PathKind : uint8_t { kCompute, kPull, kPush, kStage, kCopy, kScalars, kUpdate, kHost };
inline constexpr int kPathKinds = 8;
const char* name_of(PathKind kind);
PathKind path_kind(NodeKind kind);

// The step ran this long on `rank`, and everything behind it waited for that.
struct PathPiece {
  int rank = 0;
  int node = -1;  // −1: between nodes
  PathKind kind = PathKind::kHost;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t planned_ns = 0;  // the node's duration; 0 between nodes
  int64_t excess_ns() const { return end_ns - begin_ns - planned_ns; }
};

// Back from the end of the step: of a node with several members the one that reached it last, or in a cell
// waited least inside, is who it ran for; before it that rank's stream or one of the node's dependencies,
// whichever ended last. In order of time, without gaps from 0 to the step's end. O(nodes · members).
std::vector<PathPiece> critical_path(const StepGraph& graph, const StepTimes& times);

}  // namespace sluice::graph
