#include "cost/exchange.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/never.h"
#include "base/text.h"
#include "base/units.h"
#include "cost/cut_stages.h"
#include "cost/memory_cost.h"
#include "model/model_figures.h"
#include "strategy/row_schedule.h"

namespace sluice::cost {

using strategy::Exchange;

std::string exchange_fault(const model::Model& model, const strategy::StepPlan& plan) {
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    const strategy::Scheme& scheme = plan.pipelines[p].pipeline.scheme;
    const int64_t heads = model::most_head_lanes(model, scheme.tp);
    for (const strategy::PipelineMicroBatch& micro_batch : plan.pipelines[p].micro_batches) {
      if (micro_batch.head_lanes() <= heads) continue;
      return base::text("ring ", micro_batch.number, " of pipeline ", p, " ", to_text(scheme), ": ",
                        micro_batch.head_lanes(), " lanes exchange heads, but of the model's ", model.heads(),
                        " a TP rank has ", heads, ": use fewer lanes, nested with head groups of at most ",
                        heads, ", or a ring");
    }
  }
  return "";
}

ExchangeSet exchange_set(strategy::ExchangeRule rule) {
  using strategy::ExchangeRule;
  if (rule == ExchangeRule::kAuto) return {};
  if (rule == ExchangeRule::kCycle) return {.balanced = true, .queries = true, .in_turn = true};
  return {.ring = rule == ExchangeRule::kRing,
          .heads = rule == ExchangeRule::kHeads,
          .nested = rule == ExchangeRule::kNested,
          .balanced = rule == ExchangeRule::kBalanced,
          .queries = rule == ExchangeRule::kQueries};
}

CostModel choosing_from(const CostModel& cost, const ExchangeSet& exchanges) {
  CostModel::Options options = cost.options();
  options.exchanges = exchanges;
  return cost.with(std::move(options));
}

LanePlace LanePlace::of(std::span<const int> node_of_lane, int level) {
  LanePlace place{.lanes = static_cast<int>(node_of_lane.size()),
                  .fewest = static_cast<int>(node_of_lane.size()),
                  .run = strategy::neighbours_in_node(node_of_lane),
                  .level = std::max(1, level)};
  std::vector<int> nodes(node_of_lane.begin(), node_of_lane.end());
  std::ranges::sort(nodes);
  place.nodes = static_cast<int>(std::ranges::unique(nodes).begin() - nodes.begin());
  for (const int node : node_of_lane)
    place.fewest = std::min(place.fewest, static_cast<int>(std::ranges::count(node_of_lane, node)));
  return place;
}

int LanePlace::members_in_node(int head_lanes) const {
  return strategy::members_in_node(lanes / head_lanes, head_lanes, in_node() ? lanes : run);
}

LanePlace LanePlace::aligned(int lanes, int lanes_of_node, int level) {
  const int rest = lanes % std::max(1, lanes_of_node);
  if (lanes <= lanes_of_node) return {lanes, lanes, lanes, 1, level};
  const int full = std::max(1, lanes_of_node);
  return {lanes, rest == 0 ? full : rest, std::gcd(full, rest), (lanes + full - 1) / full, level};
}

LanePlace LanePlace::aligned(int lanes, int tp, const strategy::Topology& topology) {
  return aligned(lanes, topology.lanes_of_node(tp), topology.level_between_nodes(lanes * tp));
}

int ExchangeChoice::head_lanes(int lanes) const {
  return exchange == Exchange::kHeads ? lanes : exchange == Exchange::kNested ? nested_lanes : 1;
}

namespace {

// On the fullest stage, with what is at work beyond a ring's.
int64_t held_bytes(const strategy::Scheme& scheme, const CostModel& cost, const ExchangeBytes& more,
                   int head_lanes) {
  const bool counts_work = cost.options().memory.transient_bytes_per_token > 0;
  const int64_t at_work = counts_work ? std::max(more.forward, more.nested) : 0;
  int64_t kept = 0;
  for (int stage = 0; stage < scheme.pp; ++stage) {
    const base::Interval blocks = cost.program().blocks_in(cost.stage_run(scheme, stage));
    kept = std::max(kept, kept_exchange_bytes(cost, scheme, blocks, head_lanes));
  }
  return MemoryCost(cost, scheme).held_bytes_per_token() + kept + at_work;
}

}  // namespace

Exchanges::Exchanges(const strategy::Scheme& scheme, const CostModel& cost)
    : allowed_(cost.options().exchanges),
      topology_(cost.options().topology),
      tp_(scheme.tp),
      sharers_(topology_.nic_ranks()),
      head_bytes_(cost.options().model.head_dim() * cost.options().memory.element_bytes),
      heads_(model::head_counts(cost.options().model, scheme.tp)),
      statistic_bytes_(heads_.queries * std::max<int64_t>(4, cost.options().memory.element_bytes)) {
  for (int level = 0; level < topology_.levels(); ++level) links_.push_back(cost.options().link(level));
  const model::Model& model = cost.options().model;
  const auto most = static_cast<int>(std::min<int64_t>(model::most_head_lanes(model, scheme.tp), scheme.cp));
  most_.push_back({});
  recurrent_row_bytes_.push_back(0);
  held_bytes_.push_back(0);
  for (int lanes = 1; lanes <= most; ++lanes) {
    most_.push_back(model::most_heads(heads_, lanes));
    held_bytes_.push_back(held_bytes(scheme, cost, most_exchange_bytes(cost, scheme, lanes), lanes));
    recurrent_row_bytes_.push_back(model::exchanged_state_elements(model, scheme.tp, lanes) *
                                   cost.options().memory.element_bytes);
  }
  held_travelling_bytes_ = held_bytes(scheme, cost, most_moving_query_bytes(cost, scheme), 1);
  const int repeated = cost.options().execution->repeated_forwards();
  const int64_t again = repeated > 0 ? strategy::MemoryPolicy::kAll : cost.policy().recompute_permille;
  for (int stage = 0; stage < scheme.pp; ++stage) {
    const base::Interval run = cost.stage_run(scheme, stage);
    const auto times = [&](CellKind kind) {
      const bool forward = kind == CellKind::kForward;
      Quadratic attention = cost.cell_times(scheme, kind, run);
      if (!forward) attention += cost.cell_times(scheme, CellKind::kBackwardWeight, run);
      std::vector<RingTimes> rings;
      for (int level = 0; level < topology_.levels(); ++level)
        rings.push_back(cost.ring_times(scheme, kind, run, level));
      return Times{.rings = std::move(rings),
                   .blocks = forward ? 1 : 2 + repeated,
                   .passes_permille = strategy::MemoryPolicy::kAll + (forward ? 0 : again),
                   .attention = {.a = attention.a, .a_windowed = attention.a_windowed}};
    };
    stages_.push_back({times(CellKind::kForward), times(CellKind::kBackwardInput)});
  }
}

int64_t ExchangeTimes::Rows::exposed_ns(int64_t tokens) const {
  const auto over = [&](const LinkTimes& link, int64_t bytes) {
    return bytes == 0 ? 0 : link.of_bytes(bytes);
  };
  return layers * std::max(over(inside, inside_bytes * tokens), over(between, between_bytes * tokens));
}

int64_t ExchangeTimes::exposed_ns(const Work& shared, int64_t enough_ns) const {
  int64_t ns = shared.tokens == 0 ? 0 : scans_ns;
  for (const Rows* rows : {&attention, &recurrent}) {
    if (rows->layers > 0) ns += rows->exposed_ns(shared.tokens);
  }
  if (waiting.a > 0 || waiting.a_windowed > 0) ns += waiting.of_work(shared);
  if (ns >= enough_ns) return ns;
  if (!at_least) return ns + between_nodes.exposed_ns(shared, nodes, members_in_node, in_node);
  // All lanes wait for transfers between nodes.
  const int64_t between_ns = between_nodes.exposed_ns(shared, nodes);
  if (members_in_node == 0) return ns + between_ns;
  return ns + std::min(between_ns, in_node.exposed_ns(shared, members_in_node));
}

Exchanges::Exposed Exchanges::exposed(int stage, const Work& shared, const LanePlace& place,
                                      int head_lanes) const {
  const Stage& of = stages_[static_cast<size_t>(stage)];
  return {times_of(of.forward, place, head_lanes).exposed_ns(shared),
          times_of(of.backward, place, head_lanes).exposed_ns(shared)};
}

ExchangeTimes Exchanges::times_of(const Times& times, const LanePlace& place, int head_lanes) const {
  const RingTimes& single = times.ring(place.lanes_level());
  const int members = place.lanes / head_lanes, together = place.members_in_node(head_lanes);
  ExchangeTimes of{.scans_ns = scan_ns(single, place, head_lanes),
                   .between_nodes = times.ring(place.level),
                   .in_node = times.ring(0),
                   .nodes = place.at_least ? std::max(2, place.nodes) : members / together,
                   .members_in_node = !place.at_least   ? together
                                      : place.in_node() ? members
                                                        : 0,
                   .at_least = place.at_least};
  if (head_lanes == 1) return of;
  SLUICE_ASSERT(place.lanes % head_lanes == 0 && head_lanes < static_cast<int>(most_.size()),
                base::text(head_lanes, " of ", place.lanes, " lanes exchange heads"));
  const model::HeadCounts most = most_[static_cast<size_t>(head_lanes)];
  const int64_t slowest = most.queries * head_lanes;  // over heads_.queries: how much longer attention takes
  const int64_t later = slowest - heads_.queries;
  const auto uneven = [&](int64_t a, int64_t part) {
    return static_cast<int64_t>(Wide{a} * part / heads_.queries);
  };
  of.attention = rows_of(single.all_layers(), times.passes_permille,
                         2 * (most.queries + most.keys) * head_bytes_, place, head_lanes);
  of.recurrent = rows_of(single.scanned_layers, times.passes_permille,
                         recurrent_row_bytes_[static_cast<size_t>(head_lanes)], place, head_lanes);
  of.waiting = {.a = uneven(times.attention.a, later),
                .a_windowed = uneven(times.attention.a_windowed, later)};
  const int64_t block_bytes = times.blocks * head_lanes * 2 * most.keys * head_bytes_;
  const auto ring = [&](const LinkTimes& link, int64_t bytes_per_token) {
    return RingTimes{.link = link,
                     .layers = single.layers,
                     .host_ns = single.host_ns,
                     .bytes_per_token = bytes_per_token,
                     .a = uneven(single.a, slowest),
                     .windowed_layers = single.windowed_layers,
                     .window = single.window,
                     .sides = single.sides,
                     .a_windowed = uneven(single.a_windowed, slowest)};
  };
  of.between_nodes = ring(link(place.level), block_bytes * sharers_);
  of.in_node = ring(link(0), block_bytes);
  if (members == 1) of.nodes = of.members_in_node = 1;
  return of;
}

Exchanges::Exposed Exchanges::exposed(int stage, const Work& shared, const LanePlace& place,
                                      const ExchangeChoice& choice) const {
  if (!strategy::moves_queries(choice.exchange))
    return exposed(stage, shared, place, choice.head_lanes(place.lanes));
  const Stage& of = stages_[static_cast<size_t>(stage)];
  return {travelling_ns(of, true, shared, place, choice.exchange),
          travelling_ns(of, false, shared, place, choice.exchange)};
}

// Rows that move are keys and values, k, queries, q, or a backward's queries with their gradients, 3q.
// kBalanced, with three lanes or more: the busiest lane sends keys and returns outputs. In a backward it
// sends queries and returns keys' gradients, while others send keys and return gradients. An even number of
// lanes waits half a step. kQueries: all lanes send queries on and outputs home.
int64_t Exchanges::travelling_ns(const Stage& stage, bool forward, const Work& shared, const LanePlace& place,
                                 strategy::Exchange exchange) const {
  const Times& times = forward ? stage.forward : stage.backward;
  const RingTimes& ring = times.ring(place.lanes_level());
  const int lanes = place.lanes;
  if (lanes == 1 || shared.tokens == 0) return 0;
  RingTimes others = ring;  // exposed by layers with windows
  others.layers = 0;
  const int64_t other_ns = others.exposed_ns(shared, lanes) + scan_ns(ring, place, 1);
  if (ring.layers == 0) return other_ns;
  const int64_t keys = 2 * heads_.keys * head_bytes_, queries = heads_.queries * head_bytes_;
  const int64_t out = queries + statistic_bytes_, gradients = 3 * queries + statistic_bytes_;
  const bool balanced = exchange == Exchange::kBalanced;
  const auto moved = [&](bool of_forward) {
    if (!balanced) return of_forward ? queries + out : gradients + queries;
    if (lanes == 2) return of_forward ? keys : 2 * keys;
    return of_forward ? std::max(keys + out, queries)
                      : std::max({2 * keys, keys + queries, gradients + keys});
  };
  const int64_t bytes = moved(forward) + (!forward && times.blocks == 3 ? moved(true) : 0);
  const int64_t moved_ns = ring.link.of_bytes(bytes * (place.in_node() ? 1 : sharers_) * shared.tokens);
  const int64_t step_ns = std::max(ring.host_ns, moved_ns) * ring.layers;
  const Wide attention = Wide{ring.a} * shared.squares;
  const int steps = balanced ? lanes / 2 : lanes - 1;
  const Wide in_step = divide((balanced ? 2 : 1) * attention, lanes);
  const Wide own = balanced ? in_step / 2 : in_step;  // the lane's rows among themselves
  const Wide taken = own + steps * std::max(in_step, Wide{step_ns} << Quadratic::kFractionBits);
  return std::max<int64_t>(0, whole_ns(taken - attention)) + other_ns;
}

int64_t Exchanges::scan_ns(const RingTimes& times, const LanePlace& place, int head_lanes) const {
  const int groups = place.lanes / head_lanes;
  if (times.scanned_layers == 0 || groups == 1) return 0;
  const int nodes = std::min(groups, place.in_node() ? 1 : std::max(2, place.nodes));
  const int64_t block_bytes = divide_up(times.state_bytes / head_lanes, model::kStateBlocks);
  const int64_t inside_ns = link(0).of_bytes(block_bytes);
  const int64_t outside_ns = std::max(inside_ns, link(place.level).of_bytes(sharers_ * block_bytes));
  const int64_t hops_ns = 2 * (groups - nodes) * inside_ns + 2 * (nodes - 1) * outside_ns;
  return times.scanned_layers * (hops_ns + (model::kStateBlocks - 1) * (nodes > 1 ? outside_ns : inside_ns));
}

// Rows of layers whose heads go there and back passes_permille / 1000 times in the mean.
ExchangeTimes::Rows Exchanges::rows_of(int64_t layers, int64_t passes_permille, int64_t row_bytes,
                                       const LanePlace& place, int head_lanes) const {
  // A group that no node boundary cuts stays inside one node.
  const int inside = place.run % head_lanes == 0 ? head_lanes - 1 : std::min(place.fewest, head_lanes) - 1;
  const int outside = head_lanes - 1 - inside;
  const auto often = [&](const LinkTimes& on) {
    return LinkTimes{2 * passes_permille * on.latency_ns / 1000, on.bytes_per_s};
  };
  const int64_t moved_bytes = passes_permille * row_bytes / 1000;
  return {.layers = layers,
          .inside = often(link(0)),
          .between = often(link(place.level)),
          .inside_bytes = inside * moved_bytes,
          .between_bytes = outside * sharers_ * moved_bytes};
}

int64_t Exchanges::credit_tokens(const ExchangeChoice& choice, int lanes, int64_t tokens) const {
  return wide_divide_up(Wide{tokens} * held_bytes_of(choice, lanes), held_bytes_[1]);
}

int64_t Exchanges::held_bytes_of(const ExchangeChoice& choice, int lanes) const {
  if (strategy::moves_queries(choice.exchange)) return held_travelling_bytes_;
  return held_bytes_[static_cast<size_t>(choice.head_lanes(lanes))];
}

std::vector<Exchanges::Allowed> Exchanges::allowed(const LanePlace& place, int64_t max_tokens) const {
  std::vector<Allowed> found;
  const auto add = [&](bool allows, const ExchangeChoice& choice) {
    if (!allows || choice.head_lanes(place.lanes) >= static_cast<int>(most_.size())) return;
    // The inverse of credit_tokens().
    const Wide most = Wide{max_tokens} * held_bytes_[1] / held_bytes_of(choice, place.lanes);
    const bool ring = choice.exchange == Exchange::kRing;
    found.push_back({choice, ring ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(most)});
  };
  add(allowed_.ring, {});
  add(allowed_.heads, {Exchange::kHeads});
  for (int group = std::min(place.run, place.lanes - 1); group > 1; --group) {
    if (place.run % group == 0 && place.lanes % group == 0) add(allowed_.nested, {Exchange::kNested, group});
  }
  add(allowed_.balanced, {Exchange::kBalanced});
  add(allowed_.queries, {Exchange::kQueries});
  return found;
}

ExchangeChoice Exchanges::cheapest(const Work& shared, int64_t tokens, std::span<const StagePlace> stages,
                                   int64_t max_tokens) const {
  // Runs of lanes that stay inside nodes on every stage.
  LanePlace place = stages.front().place;
  for (const StagePlace& other : stages) place.run = std::gcd(place.run, other.place.run);
  std::vector<Allowed> fit = allowed(place, max_tokens);
  std::erase_if(fit, [&](const Allowed& of) { return tokens > of.most_tokens; });
  if (fit.empty()) return {};
  if (allowed_.in_turn) return fit[static_cast<size_t>(shared.tokens) % fit.size()].choice;
  ExchangeChoice best;
  int64_t best_ns = base::kNever;
  for (const auto& [choice, most_tokens] : fit) {
    int64_t ns = 0;
    for (const StagePlace& at : stages) ns += exposed(at.stage, shared, at.place, choice).both_ns();
    if (ns < best_ns) best = choice;
    best_ns = std::min(best_ns, ns);
    if (best_ns == 0) break;
  }
  return best;
}

Exchanges::Placed::Placed(const Exchanges& of, int stage, const LanePlace& place, int64_t max_tokens)
    : of_(of), stage_(stage), place_(place), max_tokens_(max_tokens) {
  const auto add = [&](const Allowed& allowed) {
    Choice& placed = choices_.emplace_back(Choice{.allowed = allowed, .forward = {}, .backward = {}});
    if (strategy::moves_queries(allowed.choice.exchange)) return;
    const Stage& times = of.stages_[static_cast<size_t>(stage)];
    const int head_lanes = allowed.choice.head_lanes(place.lanes);
    placed.forward = of.times_of(times.forward, place, head_lanes);
    placed.backward = of.times_of(times.backward, place, head_lanes);
  };
  for (const Allowed& allowed : of.allowed(place, max_tokens)) add(allowed);
  if (!of.allowed_.ring) add({.choice = {}, .most_tokens = std::numeric_limits<int64_t>::max()});
}

Exchanges::Exposed Exchanges::Placed::exposed(const Choice& choice, const Work& shared,
                                              int64_t enough_ns) const {
  if (strategy::moves_queries(choice.allowed.choice.exchange))
    return of_.exposed(stage_, shared, place_, choice.allowed.choice);
  Exposed of{.backward_ns = choice.backward.exposed_ns(shared, enough_ns)};
  if (of.backward_ns < enough_ns)
    of.forward_ns = choice.forward.exposed_ns(shared, enough_ns - of.backward_ns);
  return of;
}

Exchanges::Exposed Exchanges::Placed::least(const Work& shared) const { return find(shared).exposed; }

int64_t Exchanges::Placed::most_tokens(const Work& shared) const { return find(shared).most_tokens; }

Exchanges::Placed::Least Exchanges::Placed::find(const Work& shared) const {
  if (of_.allowed_.in_turn) {
    const StagePlace at{stage_, place_};
    const ExchangeChoice choice = of_.cheapest(shared, shared.tokens, std::span(&at, 1), max_tokens_);
    return {of_.exposed(stage_, shared, place_, choice), shared.tokens};
  }
  Least best;
  int64_t best_ns = base::kNever;
  for (size_t i = 0; i < choices_.size() && best_ns > 0; ++i) {
    const bool last_resort = !of_.allowed_.ring && i + 1 == choices_.size();
    const bool some = best_ns < base::kNever;
    if (last_resort ? some : shared.tokens > choices_[i].allowed.most_tokens) continue;
    const Exposed next = exposed(choices_[i], shared, best_ns);
    if (next.both_ns() < best_ns) best = {next, choices_[i].allowed.most_tokens};
    best_ns = std::min(best_ns, next.both_ns());
  }
  return best;
}

int64_t Exchanges::floor_ns(int stage, const Work& shared, int lanes, int most_in_node) const {
  if (allowed_.moves_queries()) return 0;
  const bool in_node = lanes <= most_in_node;
  const int nodes = (lanes + most_in_node - 1) / most_in_node;
  int64_t least_ns = -1;
  const auto consider = [&](const LanePlace& place, int head_lanes) {
    const int64_t ns = exposed(stage, shared, place, head_lanes).both_ns();
    least_ns = least_ns < 0 ? ns : std::min(least_ns, ns);
  };
  const int level = topology_.level_between_nodes(lanes * tp_);
  const auto at_least = [&](int group) {
    return LanePlace{lanes, in_node ? lanes : group == 1 ? 0 : group, group, nodes, level, /*at_least=*/true};
  };
  consider(at_least(1), 1);
  if (least_ns == 0) return 0;
  const auto most = static_cast<int>(most_.size()) - 1;
  if (allowed_.heads && lanes <= most) consider({lanes, lanes / nodes, in_node ? lanes : 1, 0, level}, lanes);
  for (int group = 2; group <= std::min({lanes - 1, most_in_node, most}) && allowed_.nested; ++group) {
    if (lanes % group == 0) consider(at_least(group), group);
  }
  return least_ns;
}

// Bytes of a sequence's rows of so many heads, there and back, in forward and backward.
Wide Exchanges::moved_bytes(const Stage& times, const model::HeadCounts& heads, int64_t length) const {
  return Wide{times.forward.passes_permille + times.backward.passes_permille} *
         times.forward.ring(0).all_layers() * 2 * (heads.queries + heads.keys) * head_bytes_ * length / 1000;
}

namespace {

int64_t moving_ns(Wide bytes, const LinkTimes& link) {
  return static_cast<int64_t>(bytes * base::kNano / link.bytes_per_s);
}

}  // namespace

// The time that lanes of head groups wait for the one with most heads in a sequence's attention.
int64_t Exchanges::waiting_area_ns(const Stage& times, int64_t length, int head_lanes) const {
  const int64_t later = most_[static_cast<size_t>(head_lanes)].queries * head_lanes - heads_.queries;
  const int64_t a = times.forward.attention.a + times.backward.attention.a;
  return static_cast<int64_t>(Wide{a} * later / heads_.queries * length * length >> Quadratic::kFractionBits);
}

// A lane of k gives away all of its rows' heads but a k-th. The node with the fewest lanes, of n nodes, has
// at most k/n of them, so (n − 1)/n of its lanes' rows go to other nodes, and all lanes wait.
std::optional<int64_t> Exchanges::heads_area_ns(int stage, int64_t length, int lanes,
                                                int most_in_node) const {
  if (!allowed_.heads) return std::nullopt;
  const Stage& times = stages_[static_cast<size_t>(stage)];
  std::optional<int64_t> least_ns;
  for (; lanes < static_cast<int>(most_.size()); ++lanes) {
    const bool in_node = lanes <= most_in_node;
    const int nodes = std::max(2, (lanes + most_in_node - 1) / most_in_node);
    const auto moved_ns = [&](const model::HeadCounts& heads) {
      const Wide bytes = moved_bytes(times, heads, length);
      const int64_t between_ns = moving_ns(bytes * sharers_ * (nodes - 1) / nodes, link(1));
      return in_node ? std::min(between_ns, moving_ns(bytes * (lanes - 1) / lanes, link(0))) : between_ns;
    };
    if (least_ns && moved_ns(heads_) >= *least_ns) break;  // more lanes move no less
    model::HeadCounts most = most_[static_cast<size_t>(lanes)];
    most.queries *= lanes, most.keys *= lanes;
    const int64_t ns = moved_ns(most) + waiting_area_ns(times, length, lanes);
    least_ns = std::min(least_ns.value_or(ns), ns);
  }
  return least_ns;
}

std::optional<int64_t> Exchanges::head_groups_area_ns(int stage, int64_t length, int head_lanes) const {
  if (!allowed_.nested || head_lanes >= static_cast<int>(most_.size())) return std::nullopt;
  const Stage& times = stages_[static_cast<size_t>(stage)];
  return moving_ns((head_lanes - 1) * moved_bytes(times, most_[static_cast<size_t>(head_lanes)], length),
                   link(0)) +
         waiting_area_ns(times, length, head_lanes);
}

}  // namespace sluice::cost
