// The check of copies to host memory and back.
#include <algorithm>
#include <map>
#include <tuple>

#include "cost/memory_cost.h"
#include "graph/verifier_checks.h"

namespace sluice::graph::verifier {

namespace {

// A micro-batch's nodes that work on one layer.
struct LayerNodes {
  int forward = -1;
  int backward = -1;
  int offload = -1;
  int fetch = -1;
};

// Nodes by micro-batch and layer, for micro-batches that offload.
class Copies {
 public:
  Copies(const Context& context, Faults& faults) : context_(context), faults_(faults) {
    for (const int id : context.cells) visit(context.graph.node(id));
  }

  void check() {
    for (size_t micro_batch = 0; micro_batch < context_.passes.size(); ++micro_batch) {
      if (context_.passes[micro_batch].memory.offload_permille > 0)
        check_micro_batch(static_cast<int>(micro_batch));
    }
  }

 private:
  void visit(const Node& node) {
    if (is_transfer(node.kind)) return;
    const bool copy = is_copy(node.kind);
    const int micro_batch = context_.pass_of(*node.at());
    if (micro_batch < 0) return;
    const PlannedPass& planned = context_.passes[static_cast<size_t>(micro_batch)];
    if (copy && planned.memory.offload_permille == 0) {
      return faults_.add("'", label(node), "' moves activations that its micro-batch keeps");
    }
    if (planned.memory.offload_permille == 0) return;
    const base::Interval blocks = copy ? base::Interval{node.copy().block, node.copy().block + 1}
                                       : context_.program.blocks_in(node.cell().run);
    for (int64_t layer = blocks.begin; layer < blocks.end; ++layer) {
      LayerNodes& nodes = nodes_[{micro_batch, layer}];
      int& place = node.kind == NodeKind::kOffload   ? nodes.offload
                   : node.kind == NodeKind::kFetch   ? nodes.fetch
                   : node.kind == NodeKind::kForward ? nodes.forward
                                                     : nodes.backward;
      if (copy && place >= 0) faults_.add("'", label(node), "' is there twice");
      if (copy) check_copy(node, micro_batch);
      place = node.id;
    }
  }

  void check_copy(const Node& node, int micro_batch) {
    const PlannedPass& planned = context_.passes[static_cast<size_t>(micro_batch)];
    const strategy::Scheme& scheme = context_.pipeline(planned.pipeline).scheme;
    const int64_t bytes = cost::MemoryCost(context_.cost.under(planned.memory), scheme)
                              .offloaded_bytes(node.copy().block, planned.tokens, planned.head_lanes);
    if (node.bytes != bytes)
      faults_.add("'", label(node), "' moves ", node.bytes, " bytes instead of ", bytes);
    if (!context_.runs_on(node, micro_batch, node.copy().stage, 1)) {
      faults_.add("'", label(node), "' runs on other ranks than its stage's");
    }
  }

  void check_micro_batch(int micro_batch) {
    const strategy::Scheme& scheme =
        context_.pipeline(context_.passes[static_cast<size_t>(micro_batch)].pipeline).scheme;
    for (int stage = 0; stage < scheme.pp; ++stage) {
      const Program& program = context_.program;
      const base::Interval layers = program.blocks_in(program.walked_back(context_.stage_run(scheme, stage)));
      for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        check_layer(micro_batch, layer, layer + cost::kLayersThatStay < layers.end);
      }
    }
  }

  void check_layer(int micro_batch, int64_t layer, bool leaves) {
    const LayerNodes& own = nodes_[{micro_batch, layer}];
    const int64_t number = layer - context_.program.blocks().begin;
    if (!leaves || context_.graph.purpose == Purpose::kEvaluate) {
      if (own.offload >= 0 || own.fetch >= 0) faults_.add("layer ", number, " is moved although it stays");
      return;
    }
    if (own.offload < 0 || own.fetch < 0)
      return faults_.add("layer ", number, " is not moved out and in again");
    const LayerNodes& behind = nodes_[{micro_batch, layer + cost::kLayersThatStay}];
    const auto expect = [&](int node, int on) {
      if (waits_for(context_.graph.node(node), on)) return;
      faults_.add("'", label(context_.graph.node(node)), "' does not wait for '",
                  label(context_.graph.node(on)), "'");
    };
    expect(own.offload, own.forward);
    expect(behind.forward, own.offload);
    expect(own.fetch, behind.backward);
    expect(own.backward, own.fetch);
  }

  const Context& context_;
  Faults& faults_;
  std::map<std::pair<int, int64_t>, LayerNodes> nodes_;
};

}  // namespace

void check_copies(const Context& context, Faults& faults) {
  faults.begin("copies");
  Copies(context, faults).check();
}

}  // namespace sluice::graph::verifier
