#include "graph/step_graph.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace sluice::graph {

using base::text;

namespace {

// Traces write hundreds of thousands of labels: no streams here.
std::string numbered(std::string_view name, int64_t number) {
  return std::string(name) + std::to_string(number);
}

std::string place_of(const Node& node) {
  std::string place = numbered(" p", node.pipeline) + numbered(" s", node.stage);
  if (node.lanes > 1 || node.lane > 0) place += numbered(" l", node.lane);
  if (node.lanes > 1) place += numbered("-", node.lane + node.lanes);
  return place + numbered(" m", node.micro_batch);
}

std::string cell_label(const char* kind, const Node& node) {
  std::string label = kind + place_of(node);
  if (node.embedding) label += " E";
  // Behind the embedding, position 0.
  const base::Interval blocks{node.run.begin - (node.embedding ? 0 : 1), node.run.end - (node.head ? 2 : 1)};
  if (!blocks.empty()) label += numbered(" L", blocks.begin) + numbered("-", blocks.end);
  if (node.head) label += " H";
  return label;
}

}  // namespace

const char* name_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::kPullInter: return "pull-inter";
    case NodeKind::kPullIntra: return "pull-intra";
    case NodeKind::kForward: return "forward";
    case NodeKind::kBackward: return "backward";
    case NodeKind::kBackwardInput: return "backward-input";
    case NodeKind::kBackwardWeight: return "backward-weight";
    case NodeKind::kSendActivation: return "send-activation";
    case NodeKind::kSendGradient: return "send-gradient";
    case NodeKind::kPushIntra: return "push-intra";
    case NodeKind::kPushInter: return "push-inter";
    case NodeKind::kReduceScalars: return "reduce-scalars";
    case NodeKind::kUpdate: return "update";
    case NodeKind::kOffload: return "offload";
    case NodeKind::kFetch: return "fetch";
  }
  SLUICE_ASSERT(false, "unknown node kind");
}

bool is_compute_cell(NodeKind kind) {
  return kind >= NodeKind::kForward && kind <= NodeKind::kBackwardWeight;
}

const char* name_of(Stream stream) {
  switch (stream) {
    case Stream::kCompute: return "compute";
    case Stream::kActivation: return "activation";
    case Stream::kGradient: return "gradient";
    case Stream::kLinkInter: return "link-inter";
    case Stream::kLinkIntra: return "link-intra";
    case Stream::kControl: return "control";
    case Stream::kHost: return "host";
  }
  SLUICE_ASSERT(false, "unknown stream");
}

Stream stream_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::kForward:
    case NodeKind::kBackward:
    case NodeKind::kBackwardInput:
    case NodeKind::kBackwardWeight:
    case NodeKind::kUpdate: return Stream::kCompute;
    case NodeKind::kSendActivation: return Stream::kActivation;
    case NodeKind::kSendGradient: return Stream::kGradient;
    case NodeKind::kPullInter:
    case NodeKind::kPushInter: return Stream::kLinkInter;
    case NodeKind::kPullIntra:
    case NodeKind::kPushIntra: return Stream::kLinkIntra;
    case NodeKind::kReduceScalars: return Stream::kControl;
    case NodeKind::kOffload:
    case NodeKind::kFetch: return Stream::kHost;
  }
  SLUICE_ASSERT(false, "unknown node kind");
}

std::vector<int> StepGraph::in_order() const {
  std::vector<int> ids(nodes.size(), -1);
  for (const Node& node : nodes) {
    SLUICE_ASSERT(node.seq >= 0 && node.seq < static_cast<int64_t>(nodes.size()),
                  text("node '", label(node), "' has seq ", node.seq));
    ids[static_cast<size_t>(node.seq)] = node.id;
  }
  return ids;
}

std::string label(const Node& node) {
  switch (node.kind) {
    case NodeKind::kForward: return cell_label("F", node);
    case NodeKind::kBackward: return cell_label("BW", node);
    case NodeKind::kBackwardInput: return cell_label("B", node);
    case NodeKind::kBackwardWeight: return cell_label("W", node);
    case NodeKind::kSendActivation: return "act" + place_of(node);
    case NodeKind::kSendGradient: return "grad" + place_of(node);
    case NodeKind::kPullInter:
    case NodeKind::kPullIntra:
    case NodeKind::kPushIntra:
    case NodeKind::kPushInter: return numbered(std::string(name_of(node.kind)) + " r", node.round);
    case NodeKind::kOffload: return cell_label("out", node);
    case NodeKind::kFetch: return cell_label("in", node);
    case NodeKind::kReduceScalars: return "scalars";
    case NodeKind::kUpdate:
      return node.members.empty() ? "update" : numbered("update rank ", node.members.front());
  }
  SLUICE_ASSERT(false, "unknown node kind");
}

uint64_t hash(const StepGraph& graph) {
  base::CanonicalBytes bytes;
  bytes.add(graph.world_size).add(graph.step).add(static_cast<int64_t>(graph.nodes.size()));
  for (const Node& node : graph.nodes) {
    bytes.add(node.seq).add(static_cast<int64_t>(node.kind)).add(node.bytes);
    const uint64_t members = base::hash_bytes(node.members.data(), node.members.size() * sizeof(int));
    bytes.add(static_cast<int64_t>(members));
  }
  return bytes.hash();
}

}  // namespace sluice::graph
