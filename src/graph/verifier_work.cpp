// The checks of the work itself: completeness, transfers between stages, what is kept, credits.
#include <algorithm>
#include <array>
#include <map>

#include "cost/memory_cost.h"
#include "graph/verifier_checks.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::graph::verifier {

using base::Interval;
using cost::CellKind;

namespace {

// How far a micro-batch has come with an operation.
enum class Progress : uint8_t { kNothing, kForward, kBackwardInput, kDone };

// The progress that a cell requires of an operation, and the progress after it.
struct Step {
  Progress from;
  Progress to;
};

Step step_of(const Program& program, CellKind kind, int64_t position) {
  if (position == program.head()) return {Progress::kNothing, Progress::kDone};
  const bool embedding = position == program.embedding();
  switch (kind) {
    case CellKind::kForward: return {Progress::kNothing, Progress::kForward};
    case CellKind::kBackward: return {Progress::kForward, Progress::kDone};
    case CellKind::kBackwardInput:
      return {Progress::kForward, embedding ? Progress::kDone : Progress::kBackwardInput};
    case CellKind::kBackwardWeight: return {Progress::kBackwardInput, Progress::kDone};
  }
  return {Progress::kNothing, Progress::kNothing};
}

// Walks the cells in seq order and keeps every micro-batch's progress with every operation.
class Completeness {
 public:
  Completeness(const Context& context, Faults& faults)
      : context_(context),
        faults_(faults),
        operations_(static_cast<size_t>(context.program.size())),
        progress_(context.passes.size() * operations_, Progress::kNothing) {}

  void check() {
    for (const int id : context_.cells) {
      const Node& node = context_.graph.node(id);
      if (is_compute_cell(node.kind)) visit(node);
    }
    for (size_t micro_batch = 0; micro_batch < context_.passes.size(); ++micro_batch) {
      for (size_t operation = 0; operation < operations_; ++operation) {
        if (at(micro_batch, static_cast<int64_t>(operation)) == wanted(static_cast<int64_t>(operation)))
          continue;
        faults_.add("operation ", operation, " of a micro-batch of pipeline ",
                    context_.passes[micro_batch].pipeline, " lane ", context_.passes[micro_batch].first_lane,
                    " is left incomplete");
        break;
      }
    }
  }

 private:
  Progress wanted(int64_t operation) const {
    const Interval own = context_.program.run();
    if (operation < own.begin || operation >= own.end) return Progress::kNothing;
    const bool train = context_.graph.purpose == Purpose::kTrain;
    const bool walked_back = operation >= context_.program.first_trained();
    const bool done = operation == context_.program.head() || (train && walked_back);
    return done ? Progress::kDone : Progress::kForward;
  }

  Progress& at(size_t micro_batch, int64_t operation) {
    return progress_[micro_batch * operations_ + static_cast<size_t>(operation)];
  }

  void visit(const Node& node) {
    const Cell& cell = node.cell();
    const int micro_batch = context_.pass_of(cell);
    if (micro_batch < 0) return faults_.add("'", label(node), "' is of no micro-batch of the plan");
    const strategy::Pipeline& pipeline = context_.pipeline(cell.pipeline);
    const CellKind kind = node.cell_kind();
    const Interval run = cell.run;
    const Interval may =
        cell.stage >= 0 && cell.stage < pipeline.scheme.pp
            ? at_work(context_.program, kind, context_.stage_run(pipeline.scheme, cell.stage))
            : Interval{};
    if (run.empty() || base::intersect(run, may) != run) {
      return faults_.add("'", label(node), "' is not a part of its stage");
    }
    if (!context_.runs_on(node, micro_batch, cell.stage, 1)) {
      return faults_.add("'", label(node), "' runs on other ranks than its stage's");
    }
    advance(node, static_cast<size_t>(micro_batch), kind, run);
  }

  void advance(const Node& node, size_t micro_batch, CellKind kind, Interval run) {
    const bool forward = kind == CellKind::kForward;
    // A trunk's ends are fed by rows of other trunks.
    const Interval trunk = context_.program.run();
    if (forward && run.begin > trunk.begin && at(micro_batch, run.begin - 1) < Progress::kForward) {
      return faults_.add("'", label(node), "' runs before the operation that feeds it");
    }
    if (!forward && kind != CellKind::kBackwardWeight && run.end < trunk.end &&
        at(micro_batch, run.end) < Progress::kBackwardInput) {
      return faults_.add("'", label(node), "' runs before the gradient that feeds it");
    }
    for (int64_t operation = run.begin; operation < run.end; ++operation) {
      const Step step = step_of(context_.program, kind, operation);
      if (at(micro_batch, operation) != step.from) {
        return faults_.add("'", label(node), "' repeats work or comes too early");
      }
      at(micro_batch, operation) = step.to;
    }
  }

  const Context& context_;
  Faults& faults_;
  size_t operations_;
  std::vector<Progress> progress_;  // by micro-batch, then operation
};

}  // namespace

void check_completeness(const Context& context, Faults& faults) {
  faults.begin("completeness");
  Completeness(context, faults).check();
}

namespace {

// The cells at a stage's edges for one micro-batch.
struct Edge {
  int first_forward = -1;
  int last_forward = -1;
  int first_backward = -1;
  int last_backward = -1;
  std::array<int, 2> sent = {-1, -1};  // transfers above the stage: activation, gradient
};

// By micro-batch, then stage, the cells and transfers at the stages' edges.
std::vector<std::vector<Edge>> find_edges(const Context& context, Faults& faults) {
  std::vector<std::vector<Edge>> edges;
  for (const PlannedPass& micro_batch : context.passes) {
    edges.emplace_back(static_cast<size_t>(context.pipeline(micro_batch.pipeline).scheme.pp));
  }
  for (const int id : context.cells) {
    const Node& node = context.graph.node(id);
    if (is_copy(node.kind)) continue;
    const PassOnStage& at = *node.at();
    const int micro_batch = context.pass_of(at);
    const int boundaries = context.pipeline(at.pipeline).scheme.pp - (is_transfer(node.kind) ? 1 : 0);
    if (micro_batch < 0 || at.stage < 0 || at.stage >= boundaries) {
      faults.add("'", label(node), "' is of no micro-batch or stage of the plan");
      continue;
    }
    Edge& edge = edges[static_cast<size_t>(micro_batch)][static_cast<size_t>(at.stage)];
    if (node.kind == NodeKind::kForward) {
      if (edge.first_forward < 0) edge.first_forward = id;
      edge.last_forward = id;
    } else if (node.kind == NodeKind::kBackward || node.kind == NodeKind::kBackwardInput) {
      if (edge.first_backward < 0) edge.first_backward = id;
      edge.last_backward = id;
    } else if (is_transfer(node.kind)) {
      int& sent = edge.sent[node.kind == NodeKind::kSendGradient ? 1 : 0];
      if (sent >= 0) faults.add("'", label(node), "' is there twice");
      sent = id;
    }
  }
  return edges;
}

void check_transfer(const Context& context, int micro_batch, int boundary, int id, int producer, int consumer,
                    Faults& faults) {
  if (id < 0) {
    return faults.add("nothing connects '", label(context.graph.node(producer)), "' with '",
                      label(context.graph.node(consumer)), "'");
  }
  const Node& node = context.graph.node(id);
  if (!context.runs_on(node, micro_batch, boundary, 2))
    faults.add("'", label(node), "' is between other ranks than its stages'");
  const PlannedPass& planned = context.passes[static_cast<size_t>(micro_batch)];
  const int64_t bytes =
      context.cost.transfer_bytes(context.pipeline(planned.pipeline).scheme, planned.tokens);
  if (node.bytes != bytes) faults.add("'", label(node), "' sends ", node.bytes, " bytes instead of ", bytes);
  if (!waits_for(node, producer)) {
    faults.add("'", label(node), "' does not wait for '", label(context.graph.node(producer)), "'");
  }
  if (!waits_for(context.graph.node(consumer), id)) {
    faults.add("'", label(context.graph.node(consumer)), "' does not wait for '", label(node), "'");
  }
}

}  // namespace

void check_transfers(const Context& context, Faults& faults) {
  faults.begin("transfers");
  const auto edges = find_edges(context, faults);
  for (size_t u = 0; u < edges.size(); ++u) {
    const int micro_batch = static_cast<int>(u);
    for (size_t stage = 0; stage + 1 < edges[u].size(); ++stage) {
      const Edge& below = edges[u][stage];
      const Edge& above = edges[u][stage + 1];
      const int boundary = static_cast<int>(stage);
      check_transfer(context, micro_batch, boundary, below.sent[0], below.last_forward, above.first_forward,
                     faults);
      if (context.graph.purpose == Purpose::kEvaluate) continue;
      if (below.last_backward >= 0) {
        check_transfer(context, micro_batch, boundary, below.sent[1], above.last_backward,
                       below.first_backward, faults);
      } else if (below.sent[1] >= 0) {
        faults.add("'", label(context.graph.node(below.sent[1])), "' goes to a stage without a backward");
      }
    }
  }
}

// With FSDP a kept block stays from its forward to its
// backward. On each rank the backward must follow at once.
void check_kept(const Context& context, Faults& faults) {
  const StepGraph& graph = context.graph;
  const Program& program = context.program;
  if (graph.purpose == Purpose::kEvaluate || program.walked_back(program.blocks()).empty()) return;
  faults.begin("kept");
  std::vector<int> kept(static_cast<size_t>(graph.world_size), -1);  // by rank: the micro-batch that keeps it
  for (const int id : context.cells) {
    const Node& node = graph.node(id);
    if (!is_compute_cell(node.kind)) continue;
    const Cell& cell = node.cell();
    if (context.pipeline(cell.pipeline).scheme.fsdp == 1) continue;
    const bool backward = node.kind == NodeKind::kBackward || node.kind == NodeKind::kBackwardInput;
    for (const int rank : node.members) {
      int& micro_batch = kept[static_cast<size_t>(rank)];
      if (micro_batch >= 0 && (micro_batch != cell.pass || !backward)) {
        faults.add("'", label(node), "' lies between a forward and its backward on rank ", rank,
                   ", where lanes share parameters");
      }
      micro_batch = node.kind == NodeKind::kForward && cell.head ? cell.pass : -1;
    }
  }
}

// A micro-batch takes its credit at its first forward and returns it after its last gradient on any stage.
void check_credits(const Context& context, Faults& faults) {
  const StepGraph& graph = context.graph;
  if (graph.purpose == Purpose::kEvaluate) return;
  faults.begin("credits");
  std::map<std::pair<strategy::Scheme, strategy::MemoryPolicy>, int64_t> known;
  std::vector<int64_t> credit;                   // by pipeline
  std::vector<strategy::MemoryPolicy> policies;  // by pipeline
  for (const strategy::PipelinePlan& pipeline : graph.plan.pipelines) {
    const strategy::Scheme& scheme = pipeline.pipeline.scheme;
    const strategy::MemoryPolicy policy = schedule::credit_policy(pipeline, context.cost);
    const auto [found, is_new] = known.emplace(std::pair(scheme, policy), 0);
    if (is_new)
      found->second = cost::MemoryCost(context.cost.under(policy), scheme).credit_tokens(graph.world_size);
    credit.push_back(found->second);
    policies.push_back(policy);
  }
  std::vector<int64_t> taken;  // by micro-batch
  for (const PlannedPass& micro_batch : context.passes) {
    const strategy::MemoryPolicy& policy = policies[static_cast<size_t>(micro_batch.pipeline)];
    taken.push_back(micro_batch.tokens);
    if (micro_batch.memory == policy) continue;
    taken.back() = cost::MemoryCost(context.cost.under(policy), context.pipeline(micro_batch.pipeline).scheme)
                       .credit_of(graph.world_size, micro_batch.memory, micro_batch.tokens);
  }
  std::vector<std::vector<int64_t>> used;  // by pipeline and lane
  for (const strategy::PipelinePlan& pipeline : graph.plan.pipelines)
    used.emplace_back(static_cast<size_t>(pipeline.pipeline.scheme.cp), 0);
  const Program& program = context.program;
  const base::Interval walked_back = program.blocks_in(program.walked_back(program.run()));
  std::vector<int64_t> missing(context.passes.size(), walked_back.size());
  const auto add = [&](int of, int64_t tokens, const Node& node) {
    const PlannedPass& micro_batch = context.passes[static_cast<size_t>(of)];
    for (int lane = micro_batch.first_lane; lane < micro_batch.end_lane(); ++lane) {
      const int64_t now = used[static_cast<size_t>(micro_batch.pipeline)][static_cast<size_t>(lane)] +=
          tokens;
      if (now <= credit[static_cast<size_t>(micro_batch.pipeline)]) continue;
      faults.add("'", label(node), "' brings lane ", lane, " to ", now, " tokens; its credit is ",
                 credit[static_cast<size_t>(micro_batch.pipeline)]);
    }
  };
  for (const int id : context.cells) {
    const Node& node = graph.node(id);
    const int micro_batch = is_compute_cell(node.kind) ? context.pass_of(node.cell()) : -1;
    if (micro_batch < 0) continue;
    const int64_t tokens = taken[static_cast<size_t>(micro_batch)];
    const base::Interval run = is_compute_cell(node.kind) ? node.cell().run : base::Interval{};
    if (node.kind == NodeKind::kForward && run.begin == program.run().begin) add(micro_batch, tokens, node);
    const bool forward_alone = walked_back.empty() && run.end == program.run().end;
    const bool done = node.kind == NodeKind::kBackward || node.kind == NodeKind::kBackwardWeight;
    if (!done && !forward_alone) continue;
    if (done) missing[static_cast<size_t>(micro_batch)] -= program.blocks_in(node.cell().run).size();
    if (missing[static_cast<size_t>(micro_batch)] == 0) add(micro_batch, -tokens, node);
  }
}

}  // namespace sluice::graph::verifier
