// The checks that know what the nodes mean: completeness, transfers, links, credits.
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

bool waits_for(const Node& node, int on) { return std::ranges::binary_search(node.dependencies, on); }

// How far a unit has come with an operation.
enum class Progress : uint8_t { kNothing, kForward, kBackwardInput, kDone };

// What a cell needs an operation to be at, and what it makes of it.
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

// Walks the cells in seq order and keeps every unit's progress with every operation.
class Completeness {
 public:
  Completeness(const Context& context, Faults& faults)
      : context_(context),
        faults_(faults),
        operations_(static_cast<size_t>(context.program.size())),
        progress_(context.units.size() * operations_, Progress::kNothing) {}

  void check() {
    for (const int id : context_.cells) {
      const Node& node = context_.graph.node(id);
      if (is_compute_cell(node.kind)) visit(node);
    }
    for (size_t unit = 0; unit < context_.units.size(); ++unit) {
      for (size_t operation = 0; operation < operations_; ++operation) {
        const bool head = operation + 1 == operations_;
        const bool train = context_.graph.purpose == Purpose::kTrain;
        const Progress wanted = train || head ? Progress::kDone : Progress::kForward;
        if (at(unit, static_cast<int64_t>(operation)) == wanted) continue;
        faults_.add("operation ", operation, " of a micro-batch of pipeline ", context_.units[unit].pipeline,
                    " lane ", context_.units[unit].first_lane, " is left incomplete");
        break;
      }
    }
  }

 private:
  Progress& at(size_t unit, int64_t operation) {
    return progress_[unit * operations_ + static_cast<size_t>(operation)];
  }

  void visit(const Node& node) {
    const Cell& cell = node.cell();
    const int unit = context_.unit_of(cell);
    if (unit < 0) return faults_.add("'", label(node), "' is of no micro-batch of the plan");
    const strategy::Pipeline& pipeline = context_.pipeline(cell.pipeline);
    const CellKind kind = node.cell_kind();
    const Interval run = cell.run;
    const Interval may =
        cell.stage >= 0 && cell.stage < pipeline.scheme.pp
            ? at_work(context_.program, kind, context_.program.of_stage(pipeline.scheme.pp, cell.stage))
            : Interval{};
    if (run.empty() || base::intersect(run, may) != run) {
      return faults_.add("'", label(node), "' is not a part of its stage");
    }
    if (!context_.runs_on(node, unit, cell.stage, 1)) {
      return faults_.add("'", label(node), "' runs on other ranks than its stage's");
    }
    advance(node, static_cast<size_t>(unit), kind, run);
  }

  void advance(const Node& node, size_t unit, CellKind kind, Interval run) {
    const bool forward = kind == CellKind::kForward;
    if (forward && run.begin > 0 && at(unit, run.begin - 1) < Progress::kForward) {
      return faults_.add("'", label(node), "' runs before the operation that feeds it");
    }
    if (!forward && kind != CellKind::kBackwardWeight && at(unit, run.end) < Progress::kBackwardInput) {
      return faults_.add("'", label(node), "' runs before the gradient that feeds it");
    }
    for (int64_t operation = run.begin; operation < run.end; ++operation) {
      const Step step = step_of(context_.program, kind, operation);
      if (at(unit, operation) != step.from) {
        return faults_.add("'", label(node), "' repeats work or comes too early");
      }
      at(unit, operation) = step.to;
    }
  }

  const Context& context_;
  Faults& faults_;
  size_t operations_;
  std::vector<Progress> progress_;  // by unit, then operation
};

// The cells at a stage's edges for one unit.
struct Edge {
  int first_forward = -1;
  int last_forward = -1;
  int first_backward = -1;
  int last_backward = -1;
  std::array<int, 2> sent = {-1, -1};  // transfers above the stage: activation, gradient
};

}  // namespace

Context::Context(const StepGraph& step_graph, const model::ParameterTable& table,
                 const cost::CostModel& cost_model)
    : graph(step_graph), cost(cost_model), program(table.program) {
  std::vector<size_t> begin(graph.plan.pipelines.size() + 1, 0);  // of each pipeline's nodes in `cells`
  for (const Node& node : graph.nodes) {
    if (const UnitOnStage* at = node.at()) ++begin[static_cast<size_t>(at->pipeline) + 1];
  }
  for (size_t p = 1; p < begin.size(); ++p) begin[p] += begin[p - 1];
  cells.resize(begin.back());
  for (const int id : graph.in_order()) {
    const UnitOnStage* at = graph.node(id).at();
    if (at == nullptr) {
      exchanges.push_back(id);
    } else {
      cells[begin[static_cast<size_t>(at->pipeline)]++] = id;
    }
  }
  for (size_t p = 0; p < graph.plan.pipelines.size(); ++p) {
    first_unit.push_back(static_cast<int>(units.size()));
    const strategy::PipelinePlan& pipeline = graph.plan.pipelines[p];
    for (const strategy::Pass& pass : strategy::passes(pipeline)) {
      units.push_back({static_cast<int>(p), pass.first_lane, pass.lanes, tokens_of(pipeline, pass),
                       schedule::policy_of(pass, cost), head_lanes_of(pipeline, pass)});
    }
  }
}

int Context::unit_of(const UnitOnStage& at) const {
  const auto pipeline = static_cast<size_t>(at.pipeline);
  const int end =
      pipeline + 1 < first_unit.size() ? first_unit[pipeline + 1] : static_cast<int>(units.size());
  const int unit = first_unit[pipeline] + at.unit;
  if (at.unit < 0 || unit >= end) return -1;
  const PlannedUnit& of = units[static_cast<size_t>(unit)];
  const bool same = of.first_lane == at.lane && of.lanes == at.lanes && of.tokens == at.tokens;
  return same ? unit : -1;
}

Interval Context::gathered_by(const Node& node) const {
  const Cell& cell = node.cell();
  const strategy::Scheme& scheme = pipeline(cell.pipeline).scheme;
  if (scheme.share == 1) return cell.run;
  const CellKind kind = node.cell_kind();
  return graph::gathered_by(kind, cell.run, at_work(program, kind, program.of_stage(scheme.pp, cell.stage)));
}

Interval Context::summed_by(const Node& node) const {
  const Cell& cell = node.cell();
  const strategy::Scheme& scheme = pipeline(cell.pipeline).scheme;
  if (scheme.share == 1) return cell.run;
  const CellKind kind = node.cell_kind();
  return graph::summed_by(kind, cell.run, at_work(program, kind, program.of_stage(scheme.pp, cell.stage)));
}

bool Context::runs_on(const Node& node, int unit, int stage, int stages) const {
  const PlannedUnit& planned = units[static_cast<size_t>(unit)];
  const strategy::Pipeline& place = pipeline(planned.pipeline);
  std::vector<int> ranks;
  for (int s = stage; s < stage + stages; ++s) {
    for (int lane = planned.first_lane; lane < planned.end_lane(); ++lane) {
      for (int t = 0; t < place.scheme.tp; ++t) ranks.push_back(place.rank_of(s, lane, t));
    }
  }
  if (!std::ranges::is_sorted(ranks)) std::ranges::sort(ranks);
  return node.members == ranks;
}

void check_completeness(const Context& context, Faults& faults) {
  faults.begin("completeness");
  Completeness(context, faults).check();
}

namespace {

// By unit, then stage, the cells and transfers at the stages' edges.
std::vector<std::vector<Edge>> find_edges(const Context& context, Faults& faults) {
  std::vector<std::vector<Edge>> edges;
  for (const PlannedUnit& unit : context.units) {
    edges.emplace_back(static_cast<size_t>(context.pipeline(unit.pipeline).scheme.pp));
  }
  for (const int id : context.cells) {
    const Node& node = context.graph.node(id);
    if (is_copy(node.kind)) continue;
    const UnitOnStage& at = *node.at();
    const int unit = context.unit_of(at);
    const int boundaries = context.pipeline(at.pipeline).scheme.pp - (is_transfer(node.kind) ? 1 : 0);
    if (unit < 0 || at.stage < 0 || at.stage >= boundaries) {
      faults.add("'", label(node), "' is of no micro-batch or stage of the plan");
      continue;
    }
    Edge& edge = edges[static_cast<size_t>(unit)][static_cast<size_t>(at.stage)];
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

void check_transfer(const Context& context, int unit, int boundary, int id, int producer, int consumer,
                    Faults& faults) {
  if (id < 0) {
    return faults.add("nothing connects '", label(context.graph.node(producer)), "' with '",
                      label(context.graph.node(consumer)), "'");
  }
  const Node& node = context.graph.node(id);
  if (!context.runs_on(node, unit, boundary, 2))
    faults.add("'", label(node), "' is between other ranks than its stages'");
  const PlannedUnit& planned = context.units[static_cast<size_t>(unit)];
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
    const int unit = static_cast<int>(u);
    for (size_t stage = 0; stage + 1 < edges[u].size(); ++stage) {
      const Edge& below = edges[u][stage];
      const Edge& above = edges[u][stage + 1];
      const int boundary = static_cast<int>(stage);
      check_transfer(context, unit, boundary, below.sent[0], below.last_forward, above.first_forward, faults);
      if (context.graph.purpose == Purpose::kEvaluate) continue;
      check_transfer(context, unit, boundary, below.sent[1], above.last_backward, below.first_backward,
                     faults);
    }
  }
}

namespace {

// Rounds of one level must follow one another, each behind the level before it.
void check_rounds(const Context& context, NodeKind first, NodeKind second, Faults& faults) {
  const bool pull = first == NodeKind::kPullInter;
  const bool two_levels = context.graph.links->has_inter();
  const NodeKind only = pull ? second : first;  // intra
  const int rounds = static_cast<int>(context.graph.links->rounds.buckets.size());
  int next_first = pull ? 0 : rounds - 1;
  int next_second = next_first;
  const int stride = pull ? 1 : -1;
  std::vector<int> of_first(static_cast<size_t>(rounds), -1);
  for (const int id : context.exchanges) {
    const Node& node = context.graph.node(id);
    if (node.kind != first && node.kind != second) continue;
    const bool is_first = node.kind == first;
    if (!two_levels && node.kind != only) return faults.add("'", label(node), "' on a single node");
    int& expected = is_first ? next_first : next_second;
    if (node.round() != expected) return faults.add("'", label(node), "' where round ", expected, " is due");
    expected += stride;
    if (static_cast<int>(node.members.size()) != context.graph.world_size) {
      faults.add("'", label(node), "' is not of all ranks");
    }
    if (is_first) of_first[static_cast<size_t>(node.round())] = id;
    if (!is_first && two_levels && !waits_for(node, of_first[static_cast<size_t>(node.round())])) {
      faults.add("'", label(node), "' does not wait for the level before it");
    }
  }
  const int end = pull ? rounds : -1;
  const bool first_done = next_first == end || (!two_levels && first != only);
  const bool second_done = next_second == end || (!two_levels && second != only);
  if (!first_done || !second_done) faults.add("some rounds of ", name_of(only), " are missing");
}

}  // namespace

// A rank's compute stream is a queue, so what an earlier cell waited for has arrived for the later ones too.
void check_pulls(const Context& context, Faults& faults) {
  faults.begin("pulls");
  check_rounds(context, NodeKind::kPullInter, NodeKind::kPullIntra, faults);
  const StepGraph& graph = context.graph;
  const std::vector<int> rounds = pull_rounds(context.program, graph.links->rounds);
  std::vector<int> arrived(static_cast<size_t>(graph.world_size), -1);
  for (const int id : context.cells) {
    const Node& node = graph.node(id);
    if (!is_compute_cell(node.kind)) continue;
    int waited = -1;
    for (const int on : node.dependencies) {
      if (graph.node(on).kind == NodeKind::kPullIntra) waited = std::max(waited, graph.node(on).round());
    }
    int needed = -1;
    const Interval run = context.gathered_by(node);
    for (int64_t at = run.begin; at < run.end; ++at)
      needed = std::max(needed, rounds[static_cast<size_t>(at)]);
    for (const int rank : node.members) {
      int& have = arrived[static_cast<size_t>(rank)];
      have = std::max(have, waited);
      if (have >= needed) continue;
      faults.add("'", label(node), "' uses parameters of round ", needed, " which rank ", rank,
                 " has not waited for");
    }
  }
}

// Pushes are a queue as well: what an earlier one waited for needs no second wait. Seq stands for the place
// in a rank's program, along which it ascends.
void check_pushes(const Context& context, Faults& faults) {
  const StepGraph& graph = context.graph;
  if (graph.purpose == Purpose::kEvaluate) return;
  faults.begin("pushes");
  check_rounds(context, NodeKind::kPushIntra, NodeKind::kPushInter, faults);
  const auto ranks = static_cast<size_t>(graph.world_size);
  const size_t rounds = graph.links->rounds.buckets.size();
  std::vector<int64_t> written(ranks * rounds, -1);  // by rank and round: seq of the last gradient
  std::vector<int64_t> covered(ranks, -1);           // by rank: seq of the last cell that a push waits for
  for (const int id : context.cells) {
    const Node& node = graph.node(id);
    if (!is_compute_cell(node.kind)) continue;
    const Interval run = context.summed_by(node);
    for (int64_t at = run.begin; at < run.end; ++at) {
      if (!writes_gradient(context.program, node.cell_kind(), at)) continue;
      for (const int bucket : context.program.at(at).buckets) {
        const auto round = static_cast<size_t>(graph.links->round_of_bucket[static_cast<size_t>(bucket)]);
        for (const int rank : node.members) written[static_cast<size_t>(rank) * rounds + round] = node.seq;
      }
    }
  }
  for (const int id : context.exchanges) {
    const Node& push = graph.node(id);
    if (push.kind != NodeKind::kPushIntra) continue;
    for (const int on : push.dependencies) {
      const Node& cell = graph.node(on);
      if (!is_compute_cell(cell.kind)) continue;
      for (const int rank : cell.members) {
        int64_t& seq = covered[static_cast<size_t>(rank)];
        seq = std::max(seq, cell.seq);
      }
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (written[rank * rounds + static_cast<size_t>(push.round())] <= covered[rank]) continue;
      faults.add("'", label(push), "' does not wait for the last gradient on rank ", rank);
    }
  }
}

// A block that lanes share stays at hand from its forward to its backward: on each rank this one follows at
// once.
void check_kept(const Context& context, Faults& faults) {
  const StepGraph& graph = context.graph;
  if (graph.purpose == Purpose::kEvaluate) return;
  faults.begin("kept");
  std::vector<int> kept(static_cast<size_t>(graph.world_size), -1);  // by rank: the unit that keeps it
  for (const int id : context.cells) {
    const Node& node = graph.node(id);
    if (!is_compute_cell(node.kind)) continue;
    const Cell& cell = node.cell();
    if (context.pipeline(cell.pipeline).scheme.share == 1) continue;
    const bool backward = node.kind == NodeKind::kBackward || node.kind == NodeKind::kBackwardInput;
    for (const int rank : node.members) {
      int& unit = kept[static_cast<size_t>(rank)];
      if (unit >= 0 && (unit != cell.unit || !backward)) {
        faults.add("'", label(node), "' lies between a forward and its backward on rank ", rank,
                   ", where lanes share parameters");
      }
      unit = node.kind == NodeKind::kForward && cell.head ? cell.unit : -1;
    }
  }
}

// A unit takes its credit at its first forward and returns it behind its last gradient on any stage.
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
  std::vector<int64_t> taken;  // by unit
  for (const PlannedUnit& unit : context.units) {
    const strategy::MemoryPolicy& policy = policies[static_cast<size_t>(unit.pipeline)];
    taken.push_back(unit.tokens);
    if (unit.memory == policy) continue;
    taken.back() = cost::MemoryCost(context.cost.under(policy), context.pipeline(unit.pipeline).scheme)
                       .credit_of(graph.world_size, unit.memory, unit.tokens);
  }
  std::vector<std::vector<int64_t>> used;  // by pipeline and lane
  for (const strategy::PipelinePlan& pipeline : graph.plan.pipelines)
    used.emplace_back(static_cast<size_t>(pipeline.pipeline.scheme.cp), 0);
  std::vector<int64_t> missing(context.units.size(), context.program.blocks().size());
  const auto add = [&](int of, int64_t tokens, const Node& node) {
    const PlannedUnit& unit = context.units[static_cast<size_t>(of)];
    for (int lane = unit.first_lane; lane < unit.end_lane(); ++lane) {
      const int64_t now = used[static_cast<size_t>(unit.pipeline)][static_cast<size_t>(lane)] += tokens;
      if (now <= credit[static_cast<size_t>(unit.pipeline)]) continue;
      faults.add("'", label(node), "' brings lane ", lane, " to ", now, " tokens; its credit is ",
                 credit[static_cast<size_t>(unit.pipeline)]);
    }
  };
  for (const int id : context.cells) {
    const Node& node = graph.node(id);
    const int unit = is_compute_cell(node.kind) ? context.unit_of(node.cell()) : -1;
    if (unit < 0) continue;
    const int64_t tokens = taken[static_cast<size_t>(unit)];
    if (node.kind == NodeKind::kForward && node.cell().embedding) add(unit, tokens, node);
    if (node.kind != NodeKind::kBackward && node.kind != NodeKind::kBackwardWeight) continue;
    missing[static_cast<size_t>(unit)] -= context.program.blocks_in(node.cell().run).size();
    if (missing[static_cast<size_t>(unit)] == 0) add(unit, -tokens, node);
  }
}

// The step ends with one reduction behind all pushes (or all losses), and every rank's Update behind it.
void check_end(const Context& context, Faults& faults) {
  faults.begin("end");
  const StepGraph& graph = context.graph;
  const bool train = graph.purpose == Purpose::kTrain;
  int last_push = -1;
  int scalars = -1;
  std::vector<int> updates(static_cast<size_t>(graph.world_size), 0);
  for (const int id : context.exchanges) {
    const Node& node = graph.node(id);
    if (is_push(node.kind)) last_push = id;
    if (node.kind == NodeKind::kReduceScalars) {
      if (scalars >= 0) faults.add("scalars are reduced twice");
      scalars = id;
      if (train && !waits_for(node, last_push)) faults.add("scalars do not wait for the last push");
    }
    if (node.kind != NodeKind::kUpdate) continue;
    if (!train || scalars < 0 || !waits_for(node, scalars))
      faults.add("'", label(node), "' does not wait for the scalars");
    for (const int rank : node.members) ++updates[static_cast<size_t>(rank)];
  }
  for (const int id : context.cells) {
    const Node& node = graph.node(id);
    const bool makes_loss = is_compute_cell(node.kind) && node.cell().head;
    if (!makes_loss || scalars < 0 || node.seq < graph.node(scalars).seq) continue;
    faults.add("'", label(node), "' makes a loss behind the scalars");
  }
  if (scalars < 0) faults.add("no scalars are reduced");
  for (size_t rank = 0; train && rank < updates.size(); ++rank) {
    if (updates[rank] != 1) faults.add("rank ", rank, " updates ", updates[rank], " times");
  }
}

}  // namespace sluice::graph::verifier
