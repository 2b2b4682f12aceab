#include "graph/lower.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cost/exchange.h"
#include "cost/memory_cost.h"

namespace sluice::graph {

using cost::CellKind;

namespace {

std::vector<int> tp_ranks(const strategy::Pipeline& place, int stage, const strategy::Pass& pass) {
  std::vector<int> ranks;
  ranks.reserve(static_cast<size_t>(pass.lanes * place.scheme.tp));
  for (int lane = pass.first_lane; lane < pass.end_lane(); ++lane) {
    for (int t = 0; t < place.scheme.tp; ++t) ranks.push_back(place.rank_of(stage, lane, t));
  }
  return ranks;
}

class Lowering {
 public:
  Lowering(StepGraph& graph, const Program& program, const cost::CostModel& cost, Purpose purpose)
      : graph_(graph),
        links_(*graph.links),
        program_(program),
        cost_(cost),
        purpose_(purpose),
        pull_rounds_(pull_rounds(program, links_.rounds)),
        push_after_(links_.rounds.buckets.size()) {
    all_ranks_.resize(static_cast<size_t>(graph.world_size));
    std::iota(all_ranks_.begin(), all_ranks_.end(), 0);
  }

  // Reserves space for all nodes, so that none is moved.
  void reserve(const std::vector<PipelineDraft>& drafts);
  void add_pulls();
  void add_pipeline(const PipelineDraft& draft);
  void add_pushes();
  void add_end();

 private:
  // The nodes of one micro-batch on one stage: cells' parts in execution order.
  struct MicroBatchCells {
    std::vector<int> forward;
    std::vector<int> backward;  // fused or input gradient
    std::vector<int> weight;    // weight gradient, when not fused
  };

  Node& add(NodeKind kind, std::vector<int> members, int64_t duration_ns, Payload payload = {}) {
    Node& node = graph_.nodes.emplace_back();
    node.id = static_cast<int>(graph_.nodes.size()) - 1;
    node.kind = kind;
    node.members = std::move(members);
    node.payload = payload;
    node.duration_ns = duration_ns;
    return node;
  }
  void depend(int node, int on) { graph_.nodes[static_cast<size_t>(node)].dependencies.push_back(on); }

  int add_exchange(NodeKind kind, int round, const RoundMoves::Level& level, int previous);
  PassOnStage on_stage(const PipelineDraft& draft, int stage, int micro_batch) const;
  int64_t attention_ns(const PipelineDraft& draft, const DraftCell& cell) const;
  int add_cell(const PipelineDraft& draft, int stage, const DraftCell& cell);
  int add_transfer(const PipelineDraft& draft, NodeKind kind, int boundary, int micro_batch, int producer);
  std::vector<MicroBatchCells> add_stage(const PipelineDraft& draft, int stage);
  void chain_lane(const PipelineDraft& draft, const DraftStage& stage, const std::vector<int>& order,
                  int first_node);
  void hang_pushes(const PipelineDraft& draft, const DraftStage& stage, const std::vector<int>& order,
                   int first_node, int sums_behind);
  void connect_stages(const PipelineDraft& draft, const std::vector<std::vector<MicroBatchCells>>& cells);
  void admit(const PipelineDraft& draft, const std::vector<std::vector<MicroBatchCells>>& cells);
  void add_copies(const PipelineDraft& draft, int stage, size_t micro_batch, const MicroBatchCells& passes);
  int add_copy(const PipelineDraft& draft, NodeKind kind, int micro_batch, int like);
  int part_with(const std::vector<int>& parts, int64_t position) const;

  StepGraph& graph_;
  const LinkPlan& links_;
  const Program& program_;
  const cost::CostModel& cost_;
  const Purpose purpose_;
  const std::vector<int> pull_rounds_;
  std::vector<int> all_ranks_;
  std::vector<int> pulls_;                    // by round: the exchange that completes the round
  std::vector<std::vector<int>> push_after_;  // by round: cells that its first level waits for
  std::vector<int> end_after_;                // the nodes that ReduceScalars waits for
  std::vector<int> number_;  // by micro-batch of the current pipeline: its number on its first lane
};

void Lowering::reserve(const std::vector<PipelineDraft>& drafts) {
  size_t nodes = 4 * links_.pull.busiest.size() + 1 + all_ranks_.size();
  for (const PipelineDraft& draft : drafts) {
    for (const DraftStage& stage : draft.stages)
      nodes += stage.cells.size() + 2 * draft.load.micro_batches.size();
  }
  graph_.nodes.reserve(nodes);
}

int Lowering::add_exchange(NodeKind kind, int round, const RoundMoves::Level& level, int previous) {
  Node& node = add(kind, all_ranks_, level.duration_ns, LinkRound{round});
  node.bytes = level.bytes;
  if (previous >= 0) node.dependencies.push_back(previous);
  return node.id;
}

void Lowering::add_pulls() {
  int inter = -1;
  int intra = -1;
  for (size_t r = 0; r < links_.pull.busiest.size(); ++r) {
    const RoundMoves moves = pulled(links_, r, cost_);
    const int round = static_cast<int>(r);
    if (links_.has_inter()) inter = add_exchange(NodeKind::kPullInter, round, moves.inter, inter);
    intra = add_exchange(NodeKind::kPullIntra, round, moves.intra, intra);
    if (inter >= 0) depend(intra, inter);
    pulls_.push_back(intra);
  }
}

void Lowering::add_pushes() {
  if (purpose_ == Purpose::kEvaluate) return;
  int inter = -1;
  int intra = -1;
  for (size_t r = links_.push.busiest.size(); r-- > 0;) {
    const RoundMoves moves = pushed(links_, r, cost_);
    const int round = static_cast<int>(r);
    intra = add_exchange(NodeKind::kPushIntra, round, moves.intra, intra);
    for (const int cell : push_after_[r]) depend(intra, cell);
    if (!links_.has_inter()) continue;
    inter = add_exchange(NodeKind::kPushInter, round, moves.inter, inter);
    depend(inter, intra);
  }
  end_after_ = {links_.has_inter() ? inter : intra};
}

void Lowering::add_end() {
  const int scalars_id = add(NodeKind::kReduceScalars, all_ranks_, scalars_ns(links_, cost_)).id;
  graph_.nodes.back().bytes = kScalarBytes;
  graph_.nodes.back().dependencies = end_after_;
  if (purpose_ == Purpose::kEvaluate) return;
  const int64_t matrices_ns = matrix_update_ns(links_, cost_);
  for (const int rank : all_ranks_) {
    const int64_t owned = links_.owned[static_cast<size_t>(rank)].trained;
    depend(add(NodeKind::kUpdate, {rank}, matrices_ns + cost_.update_ns(owned)).id, scalars_id);
  }
}

PassOnStage Lowering::on_stage(const PipelineDraft& draft, int stage, int micro_batch) const {
  const strategy::Pass& planned = draft.passes[static_cast<size_t>(micro_batch)];
  return {draft.pipeline,
          stage,
          micro_batch,
          planned.first_lane,
          planned.lanes,
          number_[static_cast<size_t>(micro_batch)],
          draft.load.micro_batches[static_cast<size_t>(micro_batch)].tokens};
}

int64_t Lowering::attention_ns(const PipelineDraft& draft, const DraftCell& cell) const {
  const cost::CostModel cost = cost_.on(draft.place());
  cost::Quadratic times = cost.cell_times(draft.place().scheme, cell.kind, cell.run);
  times.b = 0;
  times.c_ns = 0;
  return std::min(cell.duration_ns, times.of_work(draft.work[static_cast<size_t>(cell.pass)]));
}

int Lowering::add_cell(const PipelineDraft& draft, int stage, const DraftCell& cell) {
  const strategy::Pass& pass = draft.passes[static_cast<size_t>(cell.pass)];
  const Cell payload{on_stage(draft, stage, cell.pass),
                     cell.run,
                     cell.run.begin == program_.embedding(),
                     cell.run.end > program_.head(),
                     cell.cp_exchange_ns,
                     cell.fsdp_ns,
                     attention_ns(draft, cell)};
  Node& node = add(node_kind(cell.kind), tp_ranks(draft.place(), stage, pass), cell.duration_ns, payload);
  std::ranges::sort(node.members);
  return node.id;
}

int Lowering::add_transfer(const PipelineDraft& draft, NodeKind kind, int boundary, int micro_batch,
                           int producer) {
  const strategy::Pass& planned = draft.passes[static_cast<size_t>(micro_batch)];
  const schedule::TimedMicroBatch& timed = draft.load.micro_batches[static_cast<size_t>(micro_batch)];
  std::vector<int> members = tp_ranks(draft.place(), boundary, planned);
  const std::vector<int> above = tp_ranks(draft.place(), boundary + 1, planned);
  members.insert(members.end(), above.begin(), above.end());
  std::ranges::sort(members);
  Node& node = add(kind, std::move(members), timed.transfer_ns[static_cast<size_t>(boundary)],
                   Transfer{on_stage(draft, boundary, micro_batch)});
  node.bytes = cost_.transfer_bytes(draft.place().scheme, timed.tokens);
  node.dependencies = {producer};
  return node.id;
}

// Makes a stage's cells nodes with consecutive ids, chained lane by lane.
std::vector<Lowering::MicroBatchCells> Lowering::add_stage(const PipelineDraft& draft, int stage) {
  const DraftStage& drafted = draft.stages[static_cast<size_t>(stage)];
  const int first_node = static_cast<int>(graph_.nodes.size());
  for (const DraftCell& cell : drafted.cells) add_cell(draft, stage, cell);
  std::vector<MicroBatchCells> by_micro_batch(draft.load.micro_batches.size());
  const int sums_behind =
      strategy::fsdp_runs(draft.place(), stage, links_.topology).behind(draft.place().scheme.fsdp);
  for (const std::vector<int>& order : drafted.order) {
    chain_lane(draft, drafted, order, first_node);
    if (purpose_ == Purpose::kTrain) hang_pushes(draft, drafted, order, first_node, sums_behind);
    for (const int c : order) {
      const DraftCell& cell = drafted.cells[static_cast<size_t>(c)];
      MicroBatchCells& micro_batch = by_micro_batch[static_cast<size_t>(cell.pass)];
      std::vector<int>& parts = cell.kind == CellKind::kForward          ? micro_batch.forward
                                : cell.kind == CellKind::kBackwardWeight ? micro_batch.weight
                                                                         : micro_batch.backward;
      if (std::ranges::find(parts, first_node + c) == parts.end()) parts.push_back(first_node + c);
    }
    const bool last_stage = stage == draft.load.stages - 1;
    if (purpose_ == Purpose::kEvaluate && last_stage && !order.empty()) {
      end_after_.push_back(first_node + order.back());
    }
  }
  return by_micro_batch;
}

// Each cell waits for the one before it, and for a pull that no earlier cell of the lane waits for.
void Lowering::chain_lane(const PipelineDraft& draft, const DraftStage& stage, const std::vector<int>& order,
                          int first_node) {
  int awaited = -1;
  int previous = -1;
  for (const int c : order) {
    const DraftCell& cell = stage.cells[static_cast<size_t>(c)];
    const base::Interval run =
        draft.place().scheme.fsdp == 1
            ? cell.run
            : gathered_by(cell.kind, cell.run, at_work(program_, cell.kind, stage.run));
    int needed = -1;
    for (int64_t at = run.begin; at < run.end; ++at) {
      needed = std::max(needed, pull_rounds_[static_cast<size_t>(at)]);
    }
    if (needed > awaited) depend(first_node + c, pulls_[static_cast<size_t>(needed)]);
    awaited = std::max(awaited, needed);
    if (previous >= 0) depend(first_node + c, previous);
    previous = first_node + c;
  }
}

// A round's push waits for the lane's last cell that writes any of the round's gradients. Pushes
// run latest round first, so a push need not wait for cells that a later round waits for.
void Lowering::hang_pushes(const PipelineDraft& draft, const DraftStage& stage, const std::vector<int>& order,
                           int first_node, int sums_behind) {
  std::vector<int> last(push_after_.size(), -1);  // by round, position in the order
  std::vector<char> seen(static_cast<size_t>(program_.size()), 0);
  int64_t missing = stage.run.size();
  for (size_t at = order.size(); at-- > 0 && missing > 0;) {
    const DraftCell& cell = stage.cells[static_cast<size_t>(order[at])];
    const base::Interval run =
        draft.place().scheme.fsdp == 1
            ? cell.run
            : summed_by(cell.kind, cell.run, at_work(program_, cell.kind, stage.run), sums_behind);
    for (int64_t position = run.begin; position < run.end; ++position) {
      if (seen[static_cast<size_t>(position)] || !writes_gradient(program_, cell.kind, position)) continue;
      seen[static_cast<size_t>(position)] = 1;
      --missing;
      for (const int bucket : program_.at(position).buckets) {
        int& latest = last[static_cast<size_t>(links_.round_of_bucket[static_cast<size_t>(bucket)])];
        latest = std::max(latest, static_cast<int>(at));
      }
    }
  }
  int awaited = -1;
  for (size_t round = last.size(); round-- > 0;) {
    if (last[round] <= awaited) continue;
    awaited = last[round];
    push_after_[round].push_back(first_node + order[static_cast<size_t>(awaited)]);
  }
}

// Fills the Communicate slots between stages. With lanes, a tied micro-batch's transfer may wait
// for one of its lanes. Transfers behind it keep their order, which the cells above rely on.
void Lowering::connect_stages(const PipelineDraft& draft,
                              const std::vector<std::vector<MicroBatchCells>>& cells) {
  const size_t first = graph_.nodes.size();
  for (size_t u = 0; u < draft.load.micro_batches.size();
       ++u) {  // ids ascend by micro-batch: older ones win ties
    for (int boundary = 0; boundary + 1 < draft.load.stages; ++boundary) {
      const MicroBatchCells& below = cells[static_cast<size_t>(boundary)][u];
      const MicroBatchCells& above = cells[static_cast<size_t>(boundary) + 1][u];
      const int micro_batch = static_cast<int>(u);
      depend(above.forward.front(),
             add_transfer(draft, NodeKind::kSendActivation, boundary, micro_batch, below.forward.back()));
      if (below.backward.empty()) continue;
      depend(below.backward.front(),
             add_transfer(draft, NodeKind::kSendGradient, boundary, micro_batch, above.backward.back()));
    }
  }
  if (draft.load.lanes == 1) return;
  std::map<std::tuple<NodeKind, int, int>, int> last;  // by kind, boundary and lane
  for (size_t id = first; id < graph_.nodes.size(); ++id) {
    const Node& node = graph_.nodes[id];
    const Transfer& of = node.transfer();
    for (int lane = of.lane; lane < of.lane + of.lanes; ++lane) {
      const auto [before, none] = last.emplace(std::tuple(node.kind, of.stage, lane), node.id);
      if (!none) depend(node.id, std::exchange(before->second, node.id));
    }
  }
}

// Stage 0 is skipped: its lanes' own order suffices. Stages without a backward finish a micro-batch
// before others do. If no stage has a backward, the last one is done after its forward.
void Lowering::admit(const PipelineDraft& draft, const std::vector<std::vector<MicroBatchCells>>& cells) {
  for (size_t u = 0; u < draft.admitted_after.size(); ++u) {
    for (const int before : draft.admitted_after[u]) {
      for (size_t stage = 1; stage < cells.size(); ++stage) {
        const MicroBatchCells& released = cells[stage][static_cast<size_t>(before)];
        const bool forward_alone = released.backward.empty();
        if (forward_alone && stage + 1 < cells.size()) continue;
        const std::vector<int>& last = forward_alone             ? released.forward
                                       : released.weight.empty() ? released.backward
                                                                 : released.weight;
        depend(cells[0][u].forward.front(), last.back());
      }
    }
  }
}

// The node among the parts of a micro-batch's cell that computes a block.
int Lowering::part_with(const std::vector<int>& parts, int64_t position) const {
  for (const int part : parts) {
    const base::Interval run = graph_.node(part).cell().run;
    if (run.begin <= position && position < run.end) return part;
  }
  SLUICE_ASSERT(false, base::text("no cell computes operation ", position));
}

// Adds a copy of the block that the cell `like` computes for the micro-batch.
int Lowering::add_copy(const PipelineDraft& draft, NodeKind kind, int micro_batch, int like) {
  const Cell of = graph_.node(like).cell();
  const strategy::Pass& planned = draft.passes[static_cast<size_t>(micro_batch)];
  const cost::CostModel cost = cost_.under(schedule::policy_of(planned, cost_));
  const int64_t block = program_.blocks_in(program_.walked_back(of.run)).begin;
  const int64_t bytes = cost::MemoryCost(cost, draft.place().scheme)
                            .offloaded_bytes(block, of.tokens, head_lanes_of(*draft.plan, planned));
  Node& node = add(kind, graph_.node(like).members, cost.options().host.of_bytes(bytes),
                   Copy{on_stage(draft, of.stage, micro_batch), block});
  node.bytes = bytes;
  return node.id;
}

// There are two buffers. A layer's forward waits until the layer two before it has left.
// A layer returns when the one two after it is done. The last two layers never leave.
void Lowering::add_copies(const PipelineDraft& draft, int stage, size_t micro_batch,
                          const MicroBatchCells& cells) {
  const base::Interval blocks =
      program_.blocks_in(program_.walked_back(cost_.stage_run(draft.place().scheme, stage)));
  for (int64_t block = blocks.begin; block + cost::kLayersThatStay < blocks.end; ++block) {
    const int out =
        add_copy(draft, NodeKind::kOffload, static_cast<int>(micro_batch), part_with(cells.forward, block));
    depend(out, part_with(cells.forward, block));
    depend(part_with(cells.forward, block + cost::kLayersThatStay), out);
  }
  for (int64_t block = blocks.end - cost::kLayersThatStay; block-- > blocks.begin;) {
    const int in =
        add_copy(draft, NodeKind::kFetch, static_cast<int>(micro_batch), part_with(cells.backward, block));
    depend(in, part_with(cells.backward, block + cost::kLayersThatStay));
    depend(part_with(cells.backward, block), in);
  }
}

void Lowering::add_pipeline(const PipelineDraft& draft) {
  number_.clear();
  std::vector<int> on_lane(static_cast<size_t>(draft.load.lanes), 0);
  for (const strategy::Pass& pass : draft.passes) {
    number_.push_back(on_lane[static_cast<size_t>(pass.first_lane)]);
    for (int lane = pass.first_lane; lane < pass.end_lane(); ++lane) ++on_lane[static_cast<size_t>(lane)];
  }
  std::vector<std::vector<MicroBatchCells>> cells;
  for (int stage = 0; stage < draft.load.stages; ++stage) cells.push_back(add_stage(draft, stage));
  for (int stage = 0; purpose_ == Purpose::kTrain && stage < draft.load.stages; ++stage) {
    for (size_t micro_batch = 0; micro_batch < draft.load.micro_batches.size(); ++micro_batch) {
      if (draft.passes[micro_batch].memory.offload_permille == 0) continue;
      add_copies(draft, stage, micro_batch, cells[static_cast<size_t>(stage)][micro_batch]);
    }
  }
  connect_stages(draft, cells);
  admit(draft, cells);
}

}  // namespace

StepGraph lower(const strategy::StepPlan& plan, const std::vector<PipelineDraft>& drafts,
                const Program& program, std::shared_ptr<const LinkPlan> links, const cost::CostModel& cost,
                Purpose purpose) {
  StepGraph graph;
  graph.world_size = links->world_size;
  graph.step = plan.step;
  graph.purpose = purpose;
  graph.program = program;
  graph.plan = plan;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines)
    graph.passes.push_back(strategy::passes(pipeline));
  graph.links = std::move(links);
  Lowering lowering(graph, program, cost, purpose);
  lowering.reserve(drafts);
  lowering.add_pulls();
  for (const PipelineDraft& draft : drafts) lowering.add_pipeline(draft);
  lowering.add_pushes();
  lowering.add_end();
  for (Node& node : graph.nodes) {
    std::ranges::sort(node.dependencies);
    const auto repeated = std::ranges::unique(node.dependencies);
    node.dependencies.erase(repeated.begin(), repeated.end());
  }
  return graph;
}

}  // namespace sluice::graph
