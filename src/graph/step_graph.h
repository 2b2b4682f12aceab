// The step graph: every rank's nodes for one iteration. One graph, three interpreters: `runtime` runs it,
// graph/clock times it, graph/trace draws it.
//
// Every node is one event: a transfer, exchange or tensor-parallel cell starts when all its members have
// reached it. The clock gives each event its commit number `seq`; every stream of every rank runs its nodes
// in ascending seq, so no durations can deadlock it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/interval.h"
#include "graph/link_plan.h"
#include "graph/model_program.h"
#include "strategy/pass.h"

namespace sluice::graph {

enum class NodeKind : uint8_t {
  kPullInter,  // one round of parameters between nodes: all ranks
  kPullIntra,  // … inside nodes: all ranks
  kForward,    // micro-batch x stage (or a run of its layers): one TP group
  kBackward,   // input and weight gradient in one
  kBackwardInput,
  kBackwardWeight,
  kSendActivation,  // stage s -> s+1: both TP groups, pairwise by TP index
  kSendGradient,    // stage s+1 -> s
  kPushIntra,       // one round of gradients inside nodes: all ranks
  kPushInter,       // … between nodes: all ranks
  kReduceScalars,   // loss sum and squared gradient norm: all ranks
  kUpdate,          // AdamW on the rank's owner slices: one rank
  kOffload,         // a layer's share of kept rows to host memory: one unit's ranks on a stage
  kFetch,           // … and back
};
const char* name_of(NodeKind kind);
bool is_compute_cell(NodeKind kind);  // forward or any backward

// Queues of one rank. Nodes of one stream run one after another; streams run side by side.
enum class Stream : uint8_t { kCompute, kActivation, kGradient, kLinkInter, kLinkIntra, kControl, kHost };
inline constexpr int kStreams = 7;
const char* name_of(Stream stream);
Stream stream_of(NodeKind kind);

struct Node {
  int id = 0;  // index in StepGraph::nodes
  NodeKind kind = NodeKind::kForward;
  std::vector<int> members;  // ascending world ranks

  // Compute cells and transfers (transfers: the lower stage).
  int pipeline = -1;
  int stage = -1;
  int unit = -1;         // index in StepGraph::passes: the pipeline's units, or where lanes share parameters
                         // its passes, which run as one unit
  int lane = -1;         // the unit's first one
  int lanes = 1;         // of the unit, which all run it as one event
  int micro_batch = -1;  // the unit's number among those of its first lane
  int64_t tokens = 0;    // of its fullest lane
  base::Interval run;    // operations of the model program; offload and fetch: one block
  bool embedding = false;  // the run begins with the embedding
  bool head = false;       // the run ends with final norm and loss, whose gradients are made here too:
                           // only forwards do

  int round = -1;  // link rounds

  int64_t duration_ns = 0;  // predicted, once all members are there
  int64_t ring_ns = 0;      // compute cells: the part of it that waits for keys and values of other lanes
  int64_t share_ns = 0;     // … and the one that waits for gathered parameters and summed gradients
  // Transfers: of one sender; exchanges: of the busiest rank, or NIC; offload and fetch: of one rank.
  int64_t bytes = 0;

  // Node ids, ascending. A rank waits for those that it is a member of. The others are the forwards'
  // admission (they wait in the clock for the weight gradients, on all stages, that free their credit): they
  // order `seq`, and so each rank's own order bounds its memory without a message.
  std::vector<int> dependencies;

  int64_t seq = -1;  // commit number; set by the clock
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

struct StepGraph {
  int world_size = 0;
  int64_t step = 0;
  Purpose purpose = Purpose::kTrain;
  strategy::StepPlan plan;
  std::vector<std::vector<strategy::Pass>> passes;  // of the plan, by pipeline
  std::shared_ptr<const LinkPlan> links;            // layout and rounds of the pipelines at work
  std::vector<Node> nodes;
  // By rank: ids of the nodes it is a member of, in ascending seq.
  std::vector<std::vector<int>> programs;
  int64_t makespan_ns = 0;

  const Node& node(int id) const { return nodes[static_cast<size_t>(id)]; }
  // Ids of all nodes in ascending seq. REQUIRES: the clock has run.
  std::vector<int> in_order() const;
};

// "F p0 s1 m3 L4-8": stable short name; blocks are counted from 0 for L of a node, for text, traces and
// errors.
std::string label(const Node& node);
// One line a node in seq order; the same graph gives the same text everywhere.
std::string to_text(const StepGraph& graph);
// Hash over every node's seq, kind, members and bytes: compared between ranks one step ahead.
uint64_t hash(const StepGraph& graph);

}  // namespace sluice::graph
