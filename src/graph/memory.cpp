#include "graph/memory.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"
#include "cost/border_bytes.h"
#include "cost/exchange_bytes.h"
#include "cost/link_buffers.h"
#include "cost/memory_cost.h"
#include "cost/token_dispatch_cost.h"
#include "graph/lane_order.h"
#include "graph/link_pieces.h"
#include "graph/waiting_rows.h"
#include "link/rows.h"
#include "model/border_rows.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::graph {

namespace {

// The lane of a cell's member in its micro-batch: tokens, the number of lanes,
// lanes per head group, the exchange, and whether a sequence has branches.
struct OnLane {
  int64_t tokens = 0;
  int64_t loss_tokens = 0;  // upper bound
  int lanes = 1;
  int head_lanes = 1;
  strategy::Exchange exchange = strategy::Exchange::kRing;
  bool branches = false;
  int64_t expert_rows = 0;  // summed over all lanes of its EP group
};

// Bytes of activations that a rank allocates and frees around a cell, by pipeline, policy and exchange.
class Activations {
 public:
  // For micro-batches whose lanes exchange heads in groups of `head_lanes`.
  Activations(const strategy::Scheme& scheme, const cost::CostModel& cost, int head_lanes)
      : scheme_(scheme),
        cost_(cost),
        memory_(cost, scheme),
        head_lanes_(head_lanes),
        exchange_(cost::most_exchange_bytes(cost, scheme, head_lanes)),
        travelling_(cost::most_moving_query_bytes(cost, scheme)) {
    const model::Program& program = cost_.program();
    for (int stage = 0; stage < scheme.pp; ++stage) {
      first_block_.push_back(program.blocks_in(program.walked_back(cost_.stage_run(scheme, stage))).begin);
      borders_.push_back(cost::border_bytes(cost, scheme, stage));
    }
    const int64_t element_bytes = cost_.options().memory.element_bytes;
    embedded_ = program.first_trained() == 0
                    ? program.kind_at(0).bytes({.tp = scheme.tp}, element_bytes).saved
                    : model::carried_bytes(program, program.blocks().begin, scheme.tp, element_bytes);
    kept_.assign(static_cast<size_t>(program.blocks().begin) + 1, 0);
    deferred_ = kept_;
    for (int64_t block = program.blocks().begin; block < program.blocks().end; ++block) {
      const bool like_before = block > program.blocks().begin &&
                               program.at(block).kind == program.at(block - 1).kind &&
                               cost.recomputes(block) == cost.recomputes(block - 1);
      const auto grow = [&](std::vector<int64_t>& sums, int64_t own) { sums.push_back(sums.back() + own); };
      grow(kept_,
           like_before ? kept_.back() - kept_.end()[-2] : memory_.kept_bytes_per_token(block, head_lanes));
      const auto deferred = [&] {
        const int64_t exchanged = cost::exchange_bytes(cost_, scheme, block, head_lanes).saved;
        return std::max<int64_t>(0, memory_.deferred_bytes_per_token(block) - exchanged);
      };
      grow(deferred_, like_before ? deferred_.back() - deferred_.end()[-2] : deferred());
    }
  }

  // Allocated at the start, for a lane with so many tokens. A block's
  // forward waits until the block two before it has been offloaded.
  int64_t taken(const Node& node, int64_t tokens) const {
    if (node.kind == NodeKind::kForward) {
      return tokens * (of_blocks(kept_, node) + boundary_of(node)) - behind(node, tokens);
    }
    if (node.kind == NodeKind::kBackwardInput) return tokens * of_blocks(deferred_, node);
    if (node.kind == NodeKind::kBackward) return tokens * recomputed(node);
    return 0;
  }

  // Working memory of the running cell, beside allocated activations.
  int64_t working(const Node& node, const OnLane& part) const {
    const auto& [tokens, loss_tokens, lanes, _, exchange, branches, rows] = part;
    // A heads exchange between all lanes has no ring.
    const bool in_ring = lanes > 1 && exchange != strategy::Exchange::kHeads;
    const int64_t beside = node.kind != NodeKind::kForward ? gradients_of(node)
                           : kept_of(node).empty()         ? border(node).held
                                                           : 0;
    const base::Interval run = node.cell().run;
    return gathered(node) +
           std::max(memory_.working_bytes(node.cell_kind(), run, tokens, loss_tokens, in_ring || branches),
                    travelling_at_work(node, part)) +
           tokens * (exchange_at_work(node, exchange) + beside);
  }

  // Freed at the end. After a block's backward the block two before it may come back.
  int64_t returned(const Node& node, int64_t tokens) const {
    const int64_t kept = of_blocks(kept_, node) + boundary_of(node);
    if (node.kind == NodeKind::kBackward) return tokens * (kept + recomputed(node)) - behind(node, tokens);
    if (node.kind == NodeKind::kBackwardWeight) return tokens * (kept + of_blocks(deferred_, node));
    return 0;
  }

 private:
  // For rows that travel to experts: their working memory, which replaces the cell's own if larger.
  int64_t travelling_at_work(const Node& node, const OnLane& part) const {
    const base::Interval blocks = blocks_of(node);
    const bool counts =
        scheme_.ep > 1 && node.kind != NodeKind::kBackwardWeight && cost::counts_buffers(cost_.options());
    const auto bytes = [&](cost::CellKind kind) {
      return cost::travel_working_bytes(cost_.options().model, cost_.options().memory.element_bytes, scheme_,
                                        kind, part.tokens, part.expert_rows,
                                        cost_.policy().keeps_dispatched());
    };
    int64_t most = 0;
    if (counts && computes_mtp(node) && mtp_work(node).routed > 0) {
      most = part.tokens * memory_.mtp_bytes().saved +
             std::max(bytes(cost::CellKind::kForward), bytes(cost::CellKind::kBackward));
    }
    for (int64_t block = blocks.begin; counts && block < blocks.end; ++block) {
      if (cost_.program().kind_at(block).work().routed > 0) return std::max(most, bytes(node.cell_kind()));
    }
    return most;
  }
  model::TokenWork mtp_work(const Node& node) const {
    const bool has_head = node.cell().run.end > cost_.program().head();
    return has_head ? cost_.program().kind_at(cost_.program().head()).mtp_work() : model::TokenWork();
  }
  // Whether the cell runs an MTP layer, forward and backward.
  bool computes_mtp(const Node& node) const {
    return node.kind == NodeKind::kForward && mtp_work(node).products > 0;
  }
  // Bytes per token.
  int64_t exchange_at_work(const Node& node, strategy::Exchange exchange) const {
    const bool mtp = computes_mtp(node);
    const bool any = mtp || !blocks_of(node).empty();
    if (cost_.options().memory.transient_bytes_per_token == 0 || !any) return 0;
    const cost::ExchangeBytes& bytes = strategy::moves_queries(exchange) ? travelling_ : exchange_;
    const int64_t backward = exchange == strategy::Exchange::kHeads ? bytes.backward : bytes.nested;
    if (mtp) return bytes.saved + std::max(bytes.forward, backward);
    if (node.kind == NodeKind::kForward) return bytes.forward;
    return node.kind == NodeKind::kBackwardWeight ? 0 : backward;
  }
  base::Interval blocks_of(const Node& node) const { return cost_.program().blocks_in(node.cell().run); }
  // The blocks that a backward returns to.
  base::Interval kept_of(const Node& node) const { return cost_.program().walked_back(blocks_of(node)); }
  int64_t of_blocks(const std::vector<int64_t>& before, const Node& node) const {
    const base::Interval blocks = blocks_of(node);
    if (blocks.empty()) return 0;
    return before[static_cast<size_t>(blocks.end)] - before[static_cast<size_t>(blocks.begin)];
  }
  int64_t recomputed(const Node& node) const {
    const bool exchanges = cost_.recomputed_blocks(blocks_of(node)) > 0;
    return memory_.recomputed_bytes_per_token(node.cell().run) + (exchanges ? exchange_.recomputed : 0);
  }
  int64_t first_block(const Node& node) const { return first_block_[static_cast<size_t>(node.cell().stage)]; }
  const cost::BorderBytes& border(const Node& node) const {
    return borders_[static_cast<size_t>(node.cell().stage)];
  }
  int64_t gradients_of(const Node& node) const {
    return node.kind == NodeKind::kBackwardWeight ? 0 : border(node).gradients;
  }
  // Charged to the part with the stage's first kept block: rows at the stage's borders. Behind
  // the embedding also the rows that the embedding keeps for its norm and makes for all layers.
  int64_t boundary_of(const Node& node) const {
    const base::Interval blocks = kept_of(node);
    if (blocks.empty() || blocks.begin != first_block(node)) return 0;
    return border(node).held + (blocks.begin == cost_.program().blocks().begin ? embedded_ : 0);
  }
  // Bytes of the blocks kLayersThatStay before the node's blocks, which leave or come back.
  int64_t behind(const Node& node, int64_t tokens) const {
    if (cost_.policy().offload_permille == 0) return 0;
    const base::Interval blocks = kept_of(node);
    int64_t bytes = 0;
    const int64_t first = first_block(node) + cost::kLayersThatStay;
    for (int64_t block = std::max(blocks.begin, first); block < blocks.end; ++block) {
      bytes += memory_.offloaded_bytes(block - cost::kLayersThatStay, tokens, head_lanes_);
    }
    return bytes;
  }
  // Gathered parameters and gradient sums of the whole stage: a part also carries its neighbours'.
  int64_t gathered(const Node& node) const {
    if (scheme_.fsdp == 1) return 0;
    int64_t& bytes = gathered_.try_emplace({node.cell().stage, node.kind}, -1).first->second;
    if (bytes < 0)
      bytes = memory_.gathered_bytes(node.cell_kind(), cost_.stage_run(scheme_, node.cell().stage));
    return bytes;
  }

  strategy::Scheme scheme_;
  cost::CostModel cost_;
  cost::MemoryCost memory_;
  int head_lanes_ = 1;
  cost::ExchangeBytes exchange_;
  cost::ExchangeBytes travelling_;
  std::vector<int64_t> first_block_;  // by stage, among kept blocks
  // Per token, summed over the blocks before a position.
  std::vector<int64_t> kept_;
  std::vector<int64_t> deferred_;
  std::vector<cost::BorderBytes> borders_;  // by stage
  int64_t embedded_ = 0;
  mutable std::map<std::pair<int, NodeKind>, int64_t> gathered_;  // cache, by stage and kind
};

// Activations of every micro-batch of a plan.
class PlannedActivations {
 public:
  PlannedActivations(const StepGraph& graph, const cost::CostModel& cost)
      : graph_(graph), cost_(cost), places_(strategy::places(graph.plan.strategy(), graph.world_size)) {
    for (const auto& passes : graph.passes) parts_.emplace_back(passes.size());
  }

  const Activations& of(const Node& node, const OnLane& part) {
    const auto pipeline = static_cast<size_t>(node.cell().pipeline);
    const strategy::Scheme& scheme = graph_.plan.pipelines[pipeline].pipeline.scheme;
    const strategy::MemoryPolicy& policy =
        schedule::policy_of(graph_.passes[pipeline][static_cast<size_t>(node.cell().pass)], cost_);
    const std::tuple key(scheme, policy, part.head_lanes, products_of(pipeline));
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    const cost::CostModel on_device = cost_.on(graph_.plan.pipelines[pipeline].pipeline);
    const Activations own(scheme, on_device.under(policy), part.head_lanes);
    return known_.emplace(key, own).first->second;
  }

  const OnLane& part(const Node& node, int rank) {
    return part(static_cast<size_t>(node.cell().pipeline), node.cell().pass, place(rank).lane);
  }

  // Beside fixed_bytes(): codes of weights that the rank multiplies as 8-bit floats.
  int64_t code_bytes(int rank) const {
    const strategy::Place& at = place(rank);
    if (at.pipeline < 0) return 0;
    const strategy::PipelinePlan& plan = graph_.plan.pipelines[static_cast<size_t>(at.pipeline)];
    const strategy::Scheme& scheme = plan.pipeline.scheme;
    if (products_of(static_cast<size_t>(at.pipeline)) != base::GemmFormat::kFloat8) return 0;
    const base::Interval run = cost_.stage_run(scheme, at.stage);
    int64_t most = 0;
    for (const strategy::Pass& pass : graph_.passes[static_cast<size_t>(at.pipeline)]) {
      const cost::CostModel own = cost_.on(plan.pipeline).under(schedule::policy_of(pass, cost_));
      most = std::max(most, cost::MemoryCost(own, scheme).float8_code_bytes(run));
    }
    return most;
  }

  // The most bytes of rows that may wait at the stage's border while the rank runs its cell of this number.
  int64_t waiting_bytes(int rank, int cell) {
    const strategy::Place& at = place(rank);
    if (at.pipeline < 0 || graph_.purpose != Purpose::kTrain) return 0;
    const auto pipeline = static_cast<size_t>(at.pipeline);
    const strategy::Scheme& scheme = graph_.plan.pipelines[pipeline].pipeline.scheme;
    if (at.stage == 0) return 0;
    std::vector<WaitingRows>& of_lane = waiting_[{at.pipeline, at.lane}];
    if (of_lane.empty()) {
      const LaneOrder order(graph_, at.pipeline, at.lane);
      for (int stage = 0; stage < scheme.pp; ++stage) of_lane.emplace_back(graph_, order, stage);
    }
    const int64_t of_token = cost::border_bytes(cost_, scheme, at.stage).entering;
    return of_lane[static_cast<size_t>(at.stage)].most_bytes(
        cell, [&](int pass) { return part(pipeline, pass, at.lane).tokens * of_token; });
  }

 private:
  // Working memory depends on whether layers round and on the format, not on their number.
  base::GemmFormat products_of(size_t pipeline) const {
    const auto& rounded = graph_.plan.pipelines[pipeline].pipeline.device.low_precision;
    return rounded == nullptr ? base::GemmFormat::kAsComputed : rounded->format;
  }
  const strategy::Place& place(int rank) const { return places_[static_cast<size_t>(rank)]; }

  const OnLane& part(size_t pipeline, int number, int lane) {
    const strategy::Pass& pass = graph_.passes[pipeline][static_cast<size_t>(number)];
    std::vector<OnLane>& parts = parts_[pipeline][static_cast<size_t>(number)];
    if (parts.empty()) {
      const strategy::PipelinePlan& plan = graph_.plan.pipelines[pipeline];
      parts.resize(static_cast<size_t>(pass.lanes));
      for (const int index : pass.micro_batches) {
        const strategy::PipelineMicroBatch& micro_batch = plan.micro_batches[static_cast<size_t>(index)];
        for (int lane = micro_batch.first_lane; lane < micro_batch.end_lane(); ++lane)
          parts[static_cast<size_t>(lane - pass.first_lane)] = {
              micro_batch.tokens_on(lane), loss_tokens(micro_batch, lane), micro_batch.lanes,
              micro_batch.head_lanes(),    micro_batch.exchange,           has_branches(micro_batch)};
      }
      add_expert_rows(plan.pipeline.scheme, pass.first_lane, parts);
    }
    return parts[static_cast<size_t>(lane - pass.first_lane)];
  }

  // A micro-batch's rows are its tokens, rounded up to a multiple of tp.
  static void add_expert_rows(const strategy::Scheme& scheme, int first_lane, std::vector<OnLane>& parts) {
    std::map<int, int64_t> rows;  // by the first lane of an EP group
    const auto group = [&](size_t part) {
      return scheme.first_of_ep_group(first_lane + static_cast<int>(part));
    };
    for (size_t i = 0; i < parts.size(); ++i)
      rows[group(i)] += (parts[i].tokens + scheme.tp - 1) / scheme.tp * scheme.tp;
    for (size_t i = 0; i < parts.size(); ++i) parts[i].expert_rows = rows[group(i)];
  }

  static bool has_branches(const strategy::PipelineMicroBatch& micro_batch) {
    const auto some = [](const std::vector<strategy::MicroBatchSequence>& sequences) {
      return std::ranges::any_of(sequences, &strategy::MicroBatchSequence::has_branches);
    };
    return some(micro_batch.sequences) || std::ranges::any_of(micro_batch.own, some);
  }

  // A lane has at most as many loss tokens as tokens, wherever in a sequence they lie.
  int64_t loss_tokens(const strategy::PipelineMicroBatch& micro_batch, int lane) const {
    int64_t most = 0;
    for (const strategy::Piece& scheduled : micro_batch.pieces_on(lane)) {
      const strategy::Sequence& sequence = graph_.plan.sequences[static_cast<size_t>(scheduled.sequence)];
      most += std::min(scheduled.tokens(), sequence.loss_tokens.value_or(scheduled.tokens()));
    }
    return most;
  }

  const StepGraph& graph_;
  const cost::CostModel& cost_;
  std::vector<strategy::Place> places_;                  // by rank
  std::vector<std::vector<std::vector<OnLane>>> parts_;  // cache, by pipeline, micro-batch and lane
  // The int is the number of lanes of a head group.
  std::map<std::tuple<strategy::Scheme, strategy::MemoryPolicy, int, base::GemmFormat>, Activations> known_;
  std::map<std::pair<int, int>, std::vector<WaitingRows>> waiting_;  // by pipeline and lane, then stage
};

// Bytes of one level's buffers, for all rounds. Inside nodes every rank counts as the busiest.
int64_t link_bytes(const LinkPlan& links, const cost::CostModel::Options& options, int rank, bool in_node) {
  const strategy::LevelCodecs& push = options.codecs.push;
  cost::LinkBuffers buffers(options.memory, options.codecs.pull, in_node ? push.in_node : push.between_nodes,
                            links.world_size);
  const auto nic = static_cast<size_t>(links.topology.nic_of(rank));
  for (size_t round = 0; round < links.pull.busiest.size(); ++round) {
    const LinkPlan::Busiest &all = links.pull.busiest[round], &trained = links.push.busiest[round];
    const link::Volume &all_of = links.pull.nics[round], &trained_of = links.push.nics[round];
    buffers.add_round(in_node ? cost::LinkLoad{all.intra_elements, all.intra_elements, trained.intra_elements,
                                               trained.intra_elements}
                              : cost::LinkLoad{all_of.sent[nic], all_of.received[nic], trained_of.sent[nic],
                                               trained_of.received[nic]},
                      link_pieces(links, round));
  }
  return buffers.bytes();
}

// All levels' buffers; 0 if buffers are not counted.
int64_t link_bytes(const StepGraph& graph, const cost::CostModel::Options& options, int rank) {
  if (!cost::counts_buffers(options)) return 0;
  const int64_t between_nodes =
      graph.links->has_inter() ? link_bytes(*graph.links, options, rank, /*in_node=*/false) : 0;
  return link_bytes(*graph.links, options, rank, /*in_node=*/true) + between_nodes;
}

// Pipelines that move more at a time make a rank's rounds larger than planning counts, which
// sees each scheme alone. The excess is a few buffers, which fit the margin of memory.
int64_t link_bytes_beyond_plan(const StepGraph& graph, const cost::CostModel& cost,
                               const strategy::Place& place, int rank) {
  const int64_t planned =
      place.pipeline < 0
          ? 0
          : cost::link_buffer_bytes(
                cost, graph.plan.strategy().pipelines[static_cast<size_t>(place.pipeline)].scheme,
                place.stage, graph.world_size);
  return std::max<int64_t>(0, link_bytes(graph, cost.options(), rank) - planned);
}

int64_t fixed_bytes(const StepGraph& graph, const cost::CostModel::Options& options, int rank) {
  const cost::MemoryModel& memory = options.memory;
  const auto r = static_cast<size_t>(rank);
  const LinkPlan::Elements& held = graph.links->held[r];
  const LinkPlan::Elements& owned = graph.links->owned[r];
  const int64_t bytes = held.all * memory.element_bytes + held.trained * memory.accumulator_bytes +
                        memory.owner_bytes(owned.all, owned.trained, owned.coded) +
                        memory.pull_bytes(options.codecs.pull, owned.all, held.all);
  if (!cost::counts_buffers(options)) return bytes;
  return cost::with_small_tensors(bytes + cost::narrow_copies_bytes(memory, owned.all - owned.coded) +
                                  link_bytes(graph, options, rank));
}

// Calls visit(cell, bytes while it runs, bytes after it) for the rank's cells in order, and for its update.
template <typename Visit>
void for_each_cell(const StepGraph& graph, const cost::CostModel& cost, PlannedActivations& activations,
                   int rank, int64_t fixed_bytes, Visit visit) {
  int64_t bytes = fixed_bytes;
  int number = 0;
  int64_t waiting = activations.waiting_bytes(rank, number);
  for (const int id : graph.programs[static_cast<size_t>(rank)]) {
    const Node& node = graph.node(id);
    if (node.kind == NodeKind::kUpdate && cost::counts_buffers(cost.options()))
      visit(node, bytes + matrix_update_bytes(*graph.links, cost.options().memory, rank), bytes);
    if (!is_compute_cell(node.kind)) continue;
    const OnLane& part = activations.part(node, rank);
    const Activations& of_cell = activations.of(node, part);
    if (graph.purpose == Purpose::kTrain) bytes += of_cell.taken(node, part.tokens);
    const int64_t during = bytes + of_cell.working(node, part) + waiting;
    if (graph.purpose == Purpose::kTrain) bytes -= of_cell.returned(node, part.tokens);
    waiting = activations.waiting_bytes(rank, ++number);
    visit(node, during, bytes + waiting);
  }
}

}  // namespace

std::vector<RankMemory> predicted_memory(const StepGraph& graph, const cost::CostModel& cost) {
  PlannedActivations activations(graph, cost);
  std::vector<RankMemory> result;
  for (int rank = 0; rank < graph.world_size; ++rank) {
    RankMemory memory;
    memory.fixed_bytes = fixed_bytes(graph, cost.options(), rank) + activations.code_bytes(rank);
    memory.peak_bytes = memory.fixed_bytes;
    for_each_cell(graph, cost, activations, rank, memory.fixed_bytes,
                  [&](const Node& cell, int64_t during_bytes, int64_t) {
                    if (during_bytes <= memory.peak_bytes) return;
                    memory.peak_bytes = during_bytes;
                    memory.node = cell.id;
                  });
    result.push_back(memory);
  }
  return result;
}

std::vector<int64_t> trunk_row_bytes(const StepGraph& graph, const cost::CostModel& cost) {
  std::vector<int64_t> bytes(static_cast<size_t>(graph.world_size), 0);
  const int64_t of_row = cost.options().model.hidden() * cost.options().memory.element_bytes;
  const auto add = [&](link::RowEnd end, int64_t copies) {
    const link::RowPlacement rows = link::row_placement(graph.plan, graph.world_size, end);
    for (size_t rank = 0; rank < bytes.size(); ++rank) {
      for (const int64_t shard : rows.shard_rows[rank]) bytes[rank] += copies * shard * of_row;
    }
  };
  const base::Interval run = graph.program.run();
  const bool trains = graph.purpose == Purpose::kTrain;
  if (run.begin > graph.program.embedding()) add(link::RowEnd::kFirstStage, trains ? 2 : 1);
  if (run.end <= graph.program.head()) add(link::RowEnd::kLastStage, 1);
  return bytes;
}

std::vector<std::vector<MemoryUse>> memory_over_time(const StepGraph& graph, const cost::CostModel& cost,
                                                     const std::vector<int>& ranks) {
  PlannedActivations activations(graph, cost);
  std::vector<std::vector<MemoryUse>> result;
  for (const int rank : ranks) {
    const int64_t fixed = fixed_bytes(graph, cost.options(), rank) + activations.code_bytes(rank);
    std::vector<MemoryUse>& uses = result.emplace_back(1, MemoryUse{0, fixed});
    const auto use = [&](int64_t time_ns, int64_t bytes) {
      if (bytes != uses.back().bytes) uses.push_back({time_ns, bytes});
    };
    for_each_cell(graph, cost, activations, rank, fixed,
                  [&](const Node& cell, int64_t during_bytes, int64_t bytes_behind) {
                    use(cell.start_ns, during_bytes);
                    use(cell.end_ns, bytes_behind);
                  });
  }
  return result;
}

namespace {

// The memory that a plan may use on each rank; 0: unknown.
std::vector<int64_t> capacities(const StepGraph& graph, const cost::CostModel& cost) {
  std::vector<int64_t> bytes(static_cast<size_t>(graph.world_size), cost.device_bytes());
  for (const strategy::PipelinePlan& plan : graph.plan.pipelines) {
    const int64_t own = cost.on(plan.pipeline).device_bytes();
    for (const int rank : plan.pipeline.ranks) bytes[static_cast<size_t>(rank)] = own;
  }
  return bytes;
}

}  // namespace

std::string memory_fault(const StepGraph& graph, const cost::CostModel& cost) {
  const std::vector<int64_t> capacity = capacities(graph, cost);
  const std::vector<RankMemory> memory = predicted_memory(graph, cost);
  const std::vector<strategy::Place> places = strategy::places(graph.plan.strategy(), graph.world_size);
  size_t fullest = 0;
  const auto over = [&](size_t rank) {
    if (capacity[rank] == 0) return int64_t{0};
    return memory[rank].peak_bytes - capacity[rank] -
           link_bytes_beyond_plan(graph, cost, places[rank], static_cast<int>(rank));
  };
  for (size_t rank = 1; rank < memory.size(); ++rank) {
    if (over(rank) > over(fullest)) fullest = rank;
  }
  if (over(fullest) <= 0) return "";
  const RankMemory& of = memory[fullest];
  const std::string where = of.node < 0 ? "" : base::text(" at '", label(graph.node(of.node)), "'");
  const auto bytes = [](int64_t value) { return base::human_bytes(static_cast<double>(value)); };
  return base::text("rank ", fullest, " needs ", bytes(of.peak_bytes), where, " (", bytes(of.fixed_bytes),
                    " of it fixed), ", bytes(over(fullest)), " more than the ", bytes(capacity[fullest]),
                    " that a plan may use there: raise tp or pp, or shorten the longest micro-batch");
}

}  // namespace sluice::graph
