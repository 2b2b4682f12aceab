// One node of a step graph: what all nodes have, and a payload with what its kind alone has. Whatever the
// code asks of a kind stands in one table (`traits`): a new kind is a row there and a payload.
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

// Queues of one rank. Nodes of one stream run one after another; streams run side by side.
// kShare has no nodes: what lanes that share parameters gather and sum beside their cells is part of these,
// and timelines alone show it (graph/fsdp_moves.h).
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
inline constexpr int kStreams = 7;  // that have nodes
inline constexpr int kTracedStreams = 8;
const char* name_of(Stream stream);

// Pull and push.
struct LinkRound {
  int round = -1;
};

// A micro-batch (where lanes share parameters a pass) on a stage: what cells, transfers and copies are of.
struct PassOnStage {
  int pipeline = -1;
  int stage = -1;        // transfers: the lower one
  int pass = -1;         // index in StepGraph::passes
  int lane = -1;         // the micro-batch's first one
  int lanes = 1;         // of the micro-batch, which all run it as one event
  int micro_batch = -1;  // the micro-batch's number among those of its first lane
  int64_t tokens = 0;    // of its fullest lane
};

struct Transfer : PassOnStage {};

// Forwards and backwards.
struct Cell : PassOnStage {
  base::Interval run;          // operations of the model program
  bool embedding = false;      // the run begins with the embedding
  bool head = false;           // the run ends with final norm and loss, whose gradients are made here too:
                               // only forwards do
  int64_t cp_exchange_ns = 0;  // of the node's duration: waiting for keys and values of other lanes
  int64_t fsdp_ns = 0;         // … and for gathered parameters and summed gradients
  int64_t attention_ns = 0;    // … and in attention: what grows with the squares of lengths
};

// Offload and fetch.
struct Copy : PassOnStage {
  int64_t block = 0;  // operation of the model program
};

// Scalars and updates need no payload.
using Payload = std::variant<std::monostate, LinkRound, Transfer, Cell, Copy>;
enum class PayloadKind : uint8_t { kNone, kLinkRound, kTransfer, kCell, kCopy };  // as in Payload

// Null for payloads that are of no micro-batch.
const PassOnStage* pass_on_stage(const Payload& payload);

struct Traits {
  const char* name;  // in files and messages: "backward-input"
  const char* mark;  // in labels: "B"
  Stream stream;
  PayloadKind payload;
  cost::CellKind cell = cost::CellKind::kForward;  // of compute cells
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

  int64_t duration_ns = 0;  // predicted, once all members are there
  // Transfers: of one sender; link rounds: of the busiest rank, or NIC; copies: of one rank.
  int64_t bytes = 0;

  // Node ids, ascending. A rank waits for those that it is a member of. The others are the forwards'
  // admission (they wait in the clock for the weight gradients, on all stages, that free their credit): they
  // order `seq`, and so each rank's own order bounds its memory without a message.
  std::vector<int> dependencies;

  int64_t seq = -1;  // commit number; set by the clock
  int64_t start_ns = 0;
  int64_t end_ns = 0;

  // REQUIRES: the payload is of this type, as the kind's traits say.
  const Cell& cell() const { return std::get<Cell>(payload); }
  const Transfer& transfer() const { return std::get<Transfer>(payload); }
  const Copy& copy() const { return std::get<Copy>(payload); }
  int round() const { return std::get<LinkRound>(payload).round; }
  cost::CellKind cell_kind() const { return traits(kind).cell; }
  // Of a cell, transfer or copy; null for all others.
  const PassOnStage* at() const { return pass_on_stage(payload); }
};

// "p0 s1 m3", with the lanes where there are several.
std::string place_of(const PassOnStage& at);

// "F p0 s1 m3 L4-8": stable short name; blocks are counted from 0 for L of a node, for text, traces and
// errors.
std::string label(const Node& node);

}  // namespace sluice::graph
