// One node of a step graph: the common fields, and a payload with its kind's own fields. All
// properties of kinds stand in one table (`traits`): a new kind is one row and a payload.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "base/interval.h"
#include "cost/cost_model.h"

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
  kOffload,         // a layer's share of kept rows to host memory: one micro-batch's ranks on a stage
  kFetch,           // … and back
};

// Queues of one rank. Nodes of one stream run one after another; streams run
// side by side. kFsdp has no nodes. FSDP's all-gathers and reduce-scatters
// are part of cells, and only timelines show them (graph/fsdp_moves.h).
enum class Stream : uint8_t {
  kCompute,
  kActivation,
  kGradient,
  kLinkInter,
  kLinkIntra,
  kControl,
  kHost,
  kFsdp
};
inline constexpr int kStreams = 7;  // streams that have nodes
inline constexpr int kTracedStreams = 8;
const char* name_of(Stream stream);

// A round of pull or push.
struct LinkRound {
  int round = -1;
};

// A micro-batch (with FSDP a pass) on a stage: the common payload of cells, transfers and copies.
struct PassOnStage {
  int pipeline = -1;
  int stage = -1;        // transfers: the lower one
  int pass = -1;         // index in StepGraph::passes
  int lane = -1;         // the micro-batch's first lane
  int lanes = 1;         // the micro-batch's lanes, which run it as one event
  int micro_batch = -1;  // the micro-batch's number among those of its first lane
  int64_t tokens = 0;    // on its fullest lane
};

struct Transfer : PassOnStage {};

// Forwards and backwards.
struct Cell : PassOnStage {
  base::Interval run;          // operations of the model program
  bool embedding = false;      // the run begins with the embedding
  bool head = false;           // the run ends with final norm and loss, whose gradients are made here too:
                               // only forwards do
  int64_t cp_exchange_ns = 0;  // part of the node's duration: waiting for other lanes' keys and values
  int64_t fsdp_ns = 0;         // … and for gathered parameters and summed gradients
  int64_t attention_ns = 0;    // … and in attention: the time that grows with squares of lengths
};

// Offload and fetch.
struct Copy : PassOnStage {
  int64_t block = 0;  // operation of the model program
};

// Scalars and updates need no payload.
using Payload = std::variant<std::monostate, LinkRound, Transfer, Cell, Copy>;
enum class PayloadKind : uint8_t { kNone, kLinkRound, kTransfer, kCell, kCopy };  // as in Payload

// Null for payloads without a micro-batch.
const PassOnStage* pass_on_stage(const Payload& payload);

struct Traits {
  const char* name;  // in files and messages: "backward-input"
  const char* mark;  // in labels: "B"
  Stream stream;
  PayloadKind payload;
  cost::CellKind cell = cost::CellKind::kForward;  // for compute cells
};
const Traits& traits(NodeKind kind);

inline const char* name_of(NodeKind kind) { return traits(kind).name; }
inline Stream stream_of(NodeKind kind) { return traits(kind).stream; }
inline bool is_compute_cell(NodeKind kind) { return traits(kind).payload == PayloadKind::kCell; }
inline bool is_transfer(NodeKind kind) { return traits(kind).payload == PayloadKind::kTransfer; }
inline bool is_copy(NodeKind kind) { return traits(kind).payload == PayloadKind::kCopy; }
inline bool is_pull(NodeKind kind) { return kind == NodeKind::kPullInter || kind == NodeKind::kPullIntra; }
inline bool is_push(NodeKind kind) { return kind == NodeKind::kPushInter || kind == NodeKind::kPushIntra; }
NodeKind node_kind(cost::CellKind kind);

struct Node {
  int id = 0;  // index in StepGraph::nodes
  NodeKind kind = NodeKind::kUpdate;
  std::vector<int> members;  // ascending world ranks
  Payload payload;

  int64_t duration_ns = 0;  // predicted, from the arrival of all members
  // Transfers: from one sender. Link rounds: at the busiest rank or NIC. Copies: of one rank.
  int64_t bytes = 0;

  // Node ids, ascending. A rank waits for those that it is a member of. The others are forwards'
  // admissions: in the clock a forward waits for the weight gradients, on all stages, that free its
  // credit. They only order `seq`, so each rank's own order bounds its memory without a message.
  std::vector<int> dependencies;

  int64_t seq = -1;  // commit number; set by the clock
  int64_t start_ns = 0;
  int64_t end_ns = 0;

  // REQUIRES: the payload has this type, as in the kind's traits.
  const Cell& cell() const { return std::get<Cell>(payload); }
  const Transfer& transfer() const { return std::get<Transfer>(payload); }
  const Copy& copy() const { return std::get<Copy>(payload); }
  int round() const { return std::get<LinkRound>(payload).round; }
  cost::CellKind cell_kind() const { return traits(kind).cell; }
  // The payload of a cell, transfer or copy; null for other nodes.
  const PassOnStage* at() const { return pass_on_stage(payload); }
};

// "p0 s1 m3", with the lanes if there are several.
std::string place_of(const PassOnStage& at);

// "F p0 s1 m3 L4-8": a stable short name for text,
// traces and errors. L counts the node's blocks from 0.
std::string label(const Node& node);

}  // namespace sluice::graph
