// The times at which each rank reached and left its nodes, planned or measured, and conclusions
// from them: which rank waited for which, and which chain of nodes took the step's time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/step_graph.h"

namespace sluice::graph {

struct NodeTime {
  int64_t reached_ns = 0;  // by this rank: its stream was free and its dependencies were done
  int64_t end_ns = 0;
  int64_t waited_ns = 0;  // inside, for other members; 0 if unknown
};
// By rank, then by position in its program, on one clock.
using StepTimes = std::vector<std::vector<NodeTime>>;

// The clock's times. REQUIRES: the clock has run.
StepTimes planned_times(const StepGraph& graph);
// Deviations from the plan, by rank.
struct Reality {
  std::vector<double> slowdown;   // cells and updates: factor on their planned duration
  std::vector<double> link;       // transfers and rounds: the same; the slowest member counts
  std::vector<int64_t> begin_ns;  // when the rank enters the step
};
// Times of a run of the graph with other durations; each stream keeps its order. Members of a cell
// wait inside for the slowest. REQUIRES: the clock has run; `reality` has a figure for each rank.
StepTimes times_in(const StepGraph& graph, const Reality& reality);
// Aligns times measured on each rank's own clock: moves them so that all ranks end their
// sums of scalars at once. No rank leaves these sums before all have reached them.
void align(const StepGraph& graph, StepTimes& times);

// By rank: the time that others' computing waited for it between cells, averaged over the others. Each other
// rank counts only for the rank it waited for most. At a transfer or round a member waits for the last one
// to reach it, then for the one that waits least inside. If that is the member itself, another counts.
std::vector<int64_t> awaited_ns(const StepGraph& graph, const StepTimes& times);
// By rank: the most of awaited_ns that the plan explains. A planned wait counts for
// each rank that is later than the waiting one, even if a third rank is later still.
std::vector<int64_t> planned_awaited_ns(const StepGraph& graph);

// Kinds of work on the critical path; kHost: none of the rank's nodes ran.
enum class PathKind : uint8_t { kCompute, kPull, kPush, kStage, kCopy, kScalars, kUpdate, kHost };
const char* name_of(PathKind kind);
PathKind path_kind(NodeKind kind);

// A stretch of the critical path: the step ran so long on `rank`, and everything after waited for it.
struct PathPiece {
  int rank = 0;
  int node = -1;  // −1: between nodes
  PathKind kind = PathKind::kHost;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t planned_ns = 0;  // the node's duration; 0 between nodes
  int64_t excess_ns() const { return end_ns - begin_ns - planned_ns; }
};

// Walks back from the end of the step. A node of several members counts for the one that reached it last,
// or in a cell waited least inside. Its predecessor is that rank's stream or a dependency, whichever
// ended last. Pieces are in order of time, without gaps from 0 to the step's end. O(nodes · members).
std::vector<PathPiece> critical_path(const StepGraph& graph, const StepTimes& times);

}  // namespace sluice::graph
