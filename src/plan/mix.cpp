#include "plan/mix.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace sluice::plan {

using strategy::Scheme;

namespace {

// Sorts by ranks, largest first. Ties: more TP first,
// then smaller FSDP degree, then smaller EP degree.
void sort_by_ranks(std::vector<SchemeCost>& schemes) {
  std::ranges::stable_sort(schemes, std::greater<>(), [](const SchemeCost& known) {
    const Scheme& scheme = known.scheme();
    return std::tuple(scheme.ranks(), scheme.tp, -scheme.fsdp, -scheme.ep);
  });
}

// Time per token, in picoseconds, gathers included, of a pass whose
// lanes have a rank's tokens of a step, or as many as they hold.
int64_t usual_token_ps(const SchemeCost& scheme, const SchemeLimits& limits) {
  const int64_t most = std::max<int64_t>(1, scheme.lane_max_len_tokens());
  const cost::Work work{.tokens = std::clamp<int64_t>(limits.tokens_a_rank * scheme.scheme().tp, 1, most)};
  return static_cast<int64_t>(cost::Wide{scheme.micro_batch_work_ns(work, 1) + scheme.gathers_ns(work)} *
                              1000 / work.tokens);
}

// Lanes over all ranks may equal the lanes of a node.
void add_new(SchemeCost scheme, std::vector<SchemeCost>& schemes) {
  const bool known = std::ranges::any_of(
      schemes, [&](const SchemeCost& other) { return other.scheme() == scheme.scheme(); });
  if (!known) schemes.push_back(std::move(scheme));
}

// Adds the scheme with the EP degree that makes a usual pass shortest.
// Adds none if gathering experts is as short and holds the model.
void add_expert_lanes(const SchemeCost& gathering, int world_size, const SchemeLimits& limits,
                      std::vector<SchemeCost>& schemes) {
  const cost::CostModel& cost = gathering.cost();
  std::optional<SchemeCost> best;
  Scheme scheme = gathering.scheme();
  for (scheme.ep = 2; scheme.ep <= scheme.fsdp; scheme.ep *= 2) {
    const bool divides =
        scheme.fsdp % scheme.ep == 0 && model::experts_fault(cost.options().model, scheme.ep).empty();
    if (!divides) continue;
    SchemeCost known(scheme, cost, world_size);
    if (known.max_len_tokens() == 0) continue;
    if (!best || usual_token_ps(known, limits) < usual_token_ps(*best, limits)) best = std::move(known);
  }
  if (!best) return;
  const bool faster =
      gathering.max_len_tokens() == 0 || usual_token_ps(*best, limits) < usual_token_ps(gathering, limits);
  if (faster) add_new(*std::move(best), schemes);
}

// Adds the scheme, unless it is known or does not hold the model, and its variant with divided experts.
void add_shared(const Scheme& scheme, const cost::CostModel& cost, int world_size, const SchemeLimits& limits,
                std::vector<SchemeCost>& schemes) {
  const bool known =
      std::ranges::any_of(schemes, [&](const SchemeCost& of) { return of.scheme() == scheme; });
  if (known) return;
  const SchemeCost shared(scheme, cost, world_size);
  if (shared.max_len_tokens() > 0) schemes.push_back(shared);
  add_expert_lanes(shared, world_size, limits, schemes);
}

// Shares over all lanes of one pipeline on all ranks: each rank keeps the
// parameters that it owns, so nothing is pulled or pushed. Also shares over
// each larger group of nodes, so that only pull and push cross groups.
void add_wide_shares(Scheme scheme, const cost::CostModel& cost, int world_size, const SchemeLimits& limits,
                     std::vector<SchemeCost>& schemes) {
  if (scheme.pp > 1) return;
  std::vector<int> shares;
  for (const int ranks : cost.options().topology.group_ranks()) {
    const auto lanes = static_cast<unsigned>(ranks / scheme.tp);
    shares.push_back(std::gcd(scheme.cp, static_cast<int>(std::bit_floor(lanes))));
  }
  if (scheme.ranks() == world_size) shares.push_back(scheme.cp);
  for (const int share : shares) {
    if (share < 2 || share > limits.max_fsdp) continue;
    scheme.fsdp = share;
    add_shared(scheme, cost, world_size, limits, schemes);
  }
}

void add_shares(Scheme scheme, const cost::CostModel& cost, int world_size, const SchemeLimits& limits,
                std::vector<SchemeCost>& schemes) {
  // A quarter more than the mean, because lanes are never filled evenly.
  const int64_t mean_tokens = limits.tokens_a_rank * scheme.tp;
  const int64_t enough = mean_tokens + mean_tokens / 4;
  const int node = std::min(scheme.cp, cost.options().topology.lanes_of_node(scheme.tp));
  bool held = false;
  for (scheme.fsdp = 1; scheme.fsdp <= std::min(scheme.cp, limits.max_fsdp); scheme.fsdp *= 2) {
    if (held && scheme.fsdp != node) continue;
    SchemeCost known(scheme, cost, world_size);
    const bool whole_node = scheme.fsdp >= node;
    const bool holds = known.lane_max_len_tokens() >= enough;
    if (known.max_len_tokens() > 0 && (scheme.fsdp == 1 || holds || whole_node)) schemes.push_back(known);
    if (scheme.fsdp > 1 && (holds || whole_node)) add_expert_lanes(known, world_size, limits, schemes);
    if (scheme.pp > 1 || (scheme.fsdp == 1 && holds) || (whole_node && holds)) return;
    held = held || holds;
  }
}

}  // namespace

std::vector<SchemeCost> usable_schemes(const cost::CostModel& cost, int world_size, int max_cp) {
  std::vector<SchemeCost> schemes;
  for (Scheme scheme : cost.schemes(world_size)) {
    for (const int lane_ranks = scheme.ranks(); scheme.cp <= max_cp && lane_ranks * scheme.cp <= world_size;
         scheme.cp *= 2) {
      SchemeCost known(scheme, cost, world_size);
      if (known.max_len_tokens() > 0) schemes.push_back(std::move(known));
    }
  }
  sort_by_ranks(schemes);
  return schemes;
}

std::vector<int> lanes_to_search(const Scheme& one_lane, int world_size, const strategy::Topology& topology,
                                 int max_cp) {
  constexpr int kWidest = 4;  // a power of two below the most
  const int most = std::min(max_cp, world_size / one_lane.ranks());
  const int node = topology.lanes_of_node(one_lane.tp);
  std::vector<int> lanes;
  for (int cp = 1; cp <= most; cp *= 2) {
    const bool in_node = cp <= node;
    if (in_node || (one_lane.pp == 1 && kWidest * cp >= most)) lanes.push_back(cp);
  }
  return lanes;
}

std::vector<SchemeCost> schemes_to_search(const cost::CostModel& cost, int world_size,
                                          const SchemeLimits& limits) {
  std::vector<SchemeCost> schemes;
  for (const Scheme& one_lane : cost.schemes(world_size)) {
    for (const int lanes : lanes_to_search(one_lane, world_size, cost.options().topology, limits.max_cp)) {
      Scheme scheme = one_lane;
      scheme.cp = lanes;
      add_shares(scheme, cost, world_size, limits, schemes);
      add_wide_shares(scheme, cost, world_size, limits, schemes);
    }
  }
  sort_by_ranks(schemes);
  return schemes;
}

std::optional<base::Infeasible> no_scheme_fits(int64_t context_length, std::span<const SchemeCost> schemes,
                                               int world_size) {
  const std::string ranks = base::human_count(world_size, "rank", "ranks");
  if (schemes.empty()) {
    return base::Infeasible{base::text("no scheme that the calibration knows holds the model on ", ranks,
                                       ": use more, or devices with more memory")};
  }
  int64_t longest = 0;
  for (const SchemeCost& scheme : schemes) longest = std::max(longest, scheme.max_len_tokens());
  if (longest >= context_length) return std::nullopt;
  return base::Infeasible{
      base::text("no strategy on ", ranks, " holds context_length ", context_length,
                 ": the longest that fits is ", longest,
                 " tokens: lower context_length, use more ranks or devices with more memory, or allow more "
                 "lanes by max_cp")};
}

int ranks_of(const Mix& mix, std::span<const SchemeCost> schemes) {
  int ranks = 0;
  for (size_t k = 0; k < mix.size(); ++k) ranks += mix[k] * schemes[k].scheme().ranks();
  return ranks;
}

void fill(Mix& mix, std::span<const SchemeCost> schemes, int ranks) {
  int left = ranks - ranks_of(mix, schemes);
  for (const bool any : {false, true}) {
    for (size_t k = 0; k < mix.size(); ++k) {
      if (!any && mix[k] == 0) continue;
      const int more = left / schemes[k].scheme().ranks();
      mix[k] += more;
      left -= more * schemes[k].scheme().ranks();
    }
  }
}

int64_t max_len_tokens(const Mix& mix, std::span<const SchemeCost> schemes) {
  int64_t longest = 0;
  for (size_t k = 0; k < mix.size(); ++k) {
    if (mix[k] > 0) longest = std::max(longest, schemes[k].max_len_tokens());
  }
  return longest;
}

strategy::Strategy strategy_of(const Mix& mix, std::span<const SchemeCost> schemes, int world_size) {
  std::vector<std::string> terms;
  for (size_t k = 0; k < mix.size(); ++k) {
    if (mix[k] > 0) terms.push_back(base::text(mix[k], "x", to_text(schemes[k].scheme())));
  }
  return strategy::parse_strategy(base::join(terms, " + "), world_size);
}

}  // namespace sluice::plan
