#include "graph/ping_pong.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "graph/clock.h"

namespace sluice::graph {
namespace {

class PingPongLowering {
 public:
  PingPongLowering() {
    graph_.world_size = 2;
    graph_.purpose = Purpose::kEvaluate;
  }

  // `after`: the node to wait for; −1: none.
  int add(NodeKind kind, std::vector<int> members, int stage, int micro_batch, int64_t duration_ns,
          int after) {
    Node& node = graph_.nodes.emplace_back();
    node.id = static_cast<int>(graph_.nodes.size()) - 1;
    node.kind = kind;
    node.members = std::move(members);
    node.duration_ns = duration_ns;
    if (after >= 0) node.dependencies = {after};
    const PassOnStage at{
        .pipeline = 0, .stage = stage, .pass = micro_batch, .lane = 0, .micro_batch = micro_batch};
    if (is_transfer(kind)) {
      node.payload = Transfer{at};
    } else {
      node.payload = Cell{at};
    }
    return node.id;
  }
  StepGraph timed() {
    run_clock(graph_);
    return std::move(graph_);
  }

 private:
  StepGraph graph_;
};

}  // namespace

StepGraph ping_pong(std::span<const PingPongLayer> layers, int micro_batches) {
  SLUICE_ASSERT(!layers.empty() && micro_batches >= 1, "ping-pong of nothing");
  PingPongLowering lowering;
  std::vector<int> last(static_cast<size_t>(micro_batches), -1);
  for (const PingPongLayer& layer : layers) {
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      int& at = last[static_cast<size_t>(micro_batch)];
      const auto then = [&](NodeKind kind, std::vector<int> members, int stage, int64_t duration_ns) {
        at = lowering.add(kind, std::move(members), stage, micro_batch, duration_ns, at);
      };
      then(NodeKind::kForward, {0}, 0, layer.attention_ns);
      if (layer.experts_ns == 0) continue;
      then(NodeKind::kSendActivation, {0, 1}, 0, layer.there_ns);
      then(NodeKind::kForward, {1}, 1, layer.experts_ns);
      then(NodeKind::kSendGradient, {0, 1}, 0, layer.back_ns);
    }
  }
  return lowering.timed();
}

}  // namespace sluice::graph
