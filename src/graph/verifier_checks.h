// The verifier's checks, one function each; internal to graph/verifier.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "cost/cost_model.h"
#include "graph/model_program.h"
#include "graph/step_graph.h"

namespace sluice::graph::verifier {

// Collects faults, the first few of every check.
class Faults {
 public:
  // Starts a check, whose name becomes the prefix of its faults.
  void begin(const std::string& check) {
    check_ = check;
    found_ = 0;
  }
  template <typename... Parts>
  void add(const Parts&... parts) {
    if (found_++ < kMost) faults_.push_back(base::text(check_, ": ", parts...));
  }
  bool empty() const { return faults_.empty(); }
  std::vector<std::string> take() { return std::move(faults_); }

 private:
  static constexpr int kMost = 8;
  std::string check_;
  int found_ = 0;
  std::vector<std::string> faults_;
};

// A micro-batch (with FSDP a pass) from the plan, independent of the lowering.
struct PlannedPass {
  int pipeline = 0;
  int first_lane = 0;
  int lanes = 1;
  int64_t tokens = 0;  // on its fullest lane
  strategy::MemoryPolicy memory;
  int head_lanes = 1;
  int end_lane() const { return first_lane + lanes; }
};

// The graph and the plan's data that checks compare it with.
struct Context {
  const StepGraph& graph;
  const cost::CostModel& cost;
  Program program;
  // Node ids of cells and transfers, pipeline by pipeline and in seq order there: no check relates two
  // pipelines, and nodes of one lie close together.
  std::vector<int> cells;
  std::vector<int> exchanges;       // the others, in seq order
  std::vector<PlannedPass> passes;  // by pipeline, one pipeline after the other
  std::vector<int> first_pass;      // by pipeline: its first index in `passes`
  // By pipeline and stage, strategy::FsdpRuns::behind.
  std::vector<std::vector<int>> sums_behind;

  Context(const StepGraph& graph, const model::ParameterTable& table, const cost::CostModel& cost);

  const strategy::Pipeline& pipeline(int index) const {
    return graph.plan.pipelines[static_cast<size_t>(index)].pipeline;
  }
  base::Interval stage_run(const strategy::Scheme& scheme, int stage) const {
    return program.of_stage(scheme.tp, scheme.pp, stage);
  }
  // Index into `passes`; -1: the plan has no such pass.
  int pass_of(const PassOnStage& at) const;
  // The operations whose parameters a cell needs, and those whose gradients are complete after it.
  base::Interval gathered_by(const Node& node) const;
  base::Interval summed_by(const Node& node) const;
  // Whether the node's members are the ranks of a micro-batch's lanes on `stages` stages from `stage` on.
  bool runs_on(const Node& node, int micro_batch, int stage, int stages) const;
};

// Whether `node` depends on the node `on`.
inline bool waits_for(const Node& node, int on) { return std::ranges::binary_search(node.dependencies, on); }

// REQUIRES for each: the checks before it found nothing.
void check_shape(const StepGraph& graph, Faults& faults);
void check_order(const StepGraph& graph, Faults& faults);
void check_membership(const StepGraph& graph, Faults& faults);
void check_communicators(const StepGraph& graph, Faults& faults);

void check_completeness(const Context& context, Faults& faults);
// REQUIRES: check_completeness found nothing.
void check_transfers(const Context& context, Faults& faults);
void check_pulls(const Context& context, Faults& faults);
void check_pushes(const Context& context, Faults& faults);
void check_kept(const Context& context, Faults& faults);
void check_credits(const Context& context, Faults& faults);
void check_copies(const Context& context, Faults& faults);
void check_end(const Context& context, Faults& faults);

}  // namespace sluice::graph::verifier
