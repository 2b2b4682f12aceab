#include "graph/link_plan.h"

#include <algorithm>
#include <tuple>

#include "base/hash.h"

namespace sluice::graph {

namespace {

int64_t busiest_elements(const link::Volume& volume) {
  return std::max(std::ranges::max(volume.sent), std::ranges::max(volume.received));
}

// Sums a volume by NIC, in pull's direction.
link::Volume by_nic(const LinkPlan& plan, const link::Volume& by_rank) {
  link::Volume nics;
  nics.sent.resize(static_cast<size_t>(plan.nics()));
  nics.received.resize(nics.sent.size());
  for (int rank = 0; rank < plan.world_size; ++rank) {
    const auto nic = static_cast<size_t>(plan.topology.nic_of(rank));
    nics.sent[nic] += by_rank.sent[static_cast<size_t>(rank)];
    nics.received[nic] += by_rank.received[static_cast<size_t>(rank)];
  }
  return nics;
}

LinkPlan::Way way(const LinkPlan& plan, const model::ParameterTable& table, link::Moved moved) {
  LinkPlan::Way way;
  for (const link::RoundVolume& round :
       link::round_volumes(table, plan.layout, plan.rounds, plan.world_size, plan.topology, moved)) {
    way.nics.push_back(by_nic(plan, round.inter));
    way.busiest.push_back({busiest_elements(way.nics.back()), busiest_elements(round.intra)});
    for (const link::Volume& leaves : round.beyond)
      way.busiest.back().beyond_elements.push_back(busiest_elements(by_nic(plan, leaves)));
  }
  return way;
}

void add(LinkPlan::Elements& to, const model::Bucket& bucket, int64_t elements) {
  to.all += elements;
  if (bucket.trained) to.trained += elements;
  if (bucket.coded) to.coded += elements;
}

// Buckets that owners cut alike and that count alike.
struct Alike {
  const model::Bucket* first = nullptr;
  int64_t count = 0;
};

std::vector<Alike> alike_buckets(const model::ParameterTable& table) {
  const auto traits = [](const model::Bucket& of) { return std::tuple(of.size, of.trained, of.coded); };
  std::vector<Alike> kinds;
  for (const model::Bucket& bucket : table.buckets) {
    const auto known =
        std::ranges::find(kinds, traits(bucket), [&](const Alike& kind) { return traits(*kind.first); });
    if (known == kinds.end()) {
      kinds.push_back({&bucket, 1});
    } else {
      ++known->count;
    }
  }
  return kinds;
}

std::string key_of(const strategy::Strategy& strategy, const LinkMachine& machine) {
  base::CanonicalBytes key;
  key.add(machine.world_size).add(machine.topology.node_ranks()).add(machine.topology.nic_ranks());
  for (const int ranks : machine.topology.group_ranks()) key.add(ranks);
  if (machine.whole_matrices) key.add("matrices");
  key.add("pipelines");
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    key.add(strategy::to_text(pipeline.scheme));
    for (const int rank : pipeline.ranks) key.add(rank);
    if (pipeline.placement) pipeline.placement->add_to(key.add("placement"));
  }
  return key.bytes();
}

}  // namespace

LinkPlan link_plan(const model::ParameterTable& table, const strategy::Strategy& strategy,
                   const LinkMachine& machine) {
  const int world_size = machine.world_size;
  LinkPlan plan{.world_size = world_size,
                .topology = machine.topology,
                .strategy = strategy,
                .layout = link::ComputeLayout(table, strategy, world_size),
                .rounds = link::rounds(table, strategy)};
  for (const model::Bucket& bucket : table.buckets) {
    plan.round_of_bucket.push_back(plan.rounds.round_of(bucket.index));
  }
  plan.pull = way(plan, table, link::Moved::kAll);
  const bool all_trained = std::ranges::all_of(table.buckets, &model::Bucket::trained);
  plan.push = all_trained ? plan.pull : way(plan, table, link::Moved::kTrained);
  const std::vector<Alike> kinds = alike_buckets(table);
  if (machine.whole_matrices) plan.matrices = link::matrix_update(table, world_size);
  const link::OwnerLayout owners{world_size};
  for (int rank = 0; rank < world_size; ++rank) {
    LinkPlan::Elements& owned = plan.owned.emplace_back();
    for (const auto& [first, count] : kinds) add(owned, *first, count * owners.owned(*first, rank).size());
    LinkPlan::Elements& held = plan.held.emplace_back();
    for (const link::Holding& holding : plan.layout.holdings(rank))
      add(held, table.buckets[static_cast<size_t>(holding.bucket)], holding.shard.size());
  }
  return plan;
}

strategy::Strategy active_strategy(const strategy::StepPlan& plan) {
  strategy::Strategy active;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    const bool works = !pipeline.micro_batches.empty();
    if (works) active.pipelines.push_back(pipeline.pipeline);
  }
  return active;
}

namespace {

// Traffic that leaves larger groups of nodes travels in parallel to the rest.
template <typename Bytes>
RoundMoves moves(const LinkPlan::Busiest& busiest, bool has_inter, const cost::CostModel& cost, Bytes bytes) {
  RoundMoves moves{.intra = {.bytes = bytes(0, busiest.intra_elements)}};
  moves.intra.duration_ns = cost.exchange_ns(moves.intra.bytes, 0);
  if (!has_inter) return moves;
  moves.inter = {.bytes = bytes(1, busiest.inter_elements)};
  moves.inter.duration_ns = cost.exchange_ns(moves.inter.bytes, 1);
  int level = 1;
  for (const int64_t elements : busiest.beyond_elements) {
    ++level;
    if (elements == 0) continue;
    moves.inter.duration_ns =
        std::max(moves.inter.duration_ns, cost.exchange_ns(bytes(level, elements), level));
  }
  return moves;
}

}  // namespace

RoundMoves pulled(const LinkPlan& links, size_t round, const cost::CostModel& cost) {
  const cost::CostModel::Options& options = cost.options();
  const bool whole = options.whole_pulls && strategy::is_difference(options.codecs.pull);
  const strategy::PullCodec codec = whole ? strategy::PullCodec::kNone : options.codecs.pull;
  return moves(links.pull.busiest[round], links.has_inter(), cost, [&](int, int64_t elements) {
    return strategy::pulled_bytes(codec, elements, options.memory.element_bytes);
  });
}

RoundMoves pushed(const LinkPlan& links, size_t round, const cost::CostModel& cost) {
  const LinkPlan::Busiest& busiest = links.push.busiest[round];
  const strategy::LevelCodecs& codecs = cost.options().codecs.push;
  RoundMoves pushed = moves(busiest, links.has_inter(), cost, [&](int level, int64_t elements) {
    return strategy::coded_bytes(level == 0 ? codecs.in_node : codecs.between_nodes, elements,
                                 cost.options().memory.accumulator_bytes);
  });
  pushed.intra.duration_ns += cost.code_ns(codecs.in_node, busiest.intra_elements);
  if (links.has_inter())
    pushed.inter.duration_ns += cost.code_ns(codecs.between_nodes, busiest.inter_elements);
  return pushed;
}

int64_t scalars_ns(const LinkPlan& links, const cost::CostModel& cost) {
  return cost.exchange_ns(kScalarBytes, links.topology.level_of_first(links.world_size));
}

int64_t matrix_update_ns(const LinkPlan& links, const cost::CostModel& cost) {
  const int level = links.topology.level_of_first(links.world_size);
  const int64_t sharers = level > 0 ? links.topology.nic_ranks() : 1;
  const auto& rounds = links.matrices.rounds;
  const auto moving_ns = [&](size_t round) {
    if (round >= rounds.size() || links.world_size == 1) return int64_t{0};
    const int64_t bytes = rounds[round].busiest_elements * cost.options().memory.accumulator_bytes;
    return cost.exchange_ns(bytes * sharers, level);
  };
  const auto steps = static_cast<double>(cost.options().newton_schulz_steps);
  int64_t ns = moving_ns(0);
  for (size_t i = 0; i < rounds.size(); ++i)
    ns += std::max(cost.products_ns(steps * rounds[i].most_work), moving_ns(i + 1)) + moving_ns(i);
  return ns;
}

int64_t matrix_update_bytes(const LinkPlan& links, const cost::MemoryModel& memory, int rank) {
  if (links.matrices.held.empty()) return 0;
  const link::MatrixUpdate::Held& held = links.matrices.held[static_cast<size_t>(rank)];
  constexpr int64_t kScalarBytes = 4096;  // norms and factors, for each of which an allocator takes a block
  const int64_t scalars = held.iterated > 0 ? kScalarBytes : 0;
  return memory.matrix_update_bytes(held.masters, held.iterated, held.coming_home) + scalars;
}

int64_t least_ns(const LinkPlan& links, const cost::CostModel& cost) {
  const RoundMoves first = pulled(links, 0, cost), last = pushed(links, 0, cost);
  int64_t update_ns = 0;
  for (const LinkPlan::Elements& owned : links.owned)
    update_ns = std::max(update_ns, cost.update_ns(owned.trained));
  return first.inter.duration_ns + first.intra.duration_ns + last.intra.duration_ns + last.inter.duration_ns +
         scalars_ns(links, cost) + matrix_update_ns(links, cost) + update_ns;
}

std::shared_ptr<const LinkPlan> LinkPlans::of(const model::ParameterTable& table,
                                              const strategy::Strategy& strategy,
                                              const LinkMachine& machine) {
  const std::string key = key_of(strategy, machine);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  }
  LinkPlan made = link_plan(table, strategy, machine);
  const bool clocks = use_ == LinkPlanUse::kClock;
  if (clocks) made.layout = link::ComputeLayout(made.world_size);
  const std::lock_guard lock(mutex_);
  if (plans_.size() >= (clocks ? kMostToClock : kMostToRun)) plans_.clear();
  return plans_.emplace(key, std::make_shared<const LinkPlan>(std::move(made))).first->second;
}

}  // namespace sluice::graph
