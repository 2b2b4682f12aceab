#include "plan/proposal.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "plan/planner.h"

namespace sluice::plan {
namespace {

using strategy::Scheme;
using strategy::Strategy;

// More than any time, and a whole portfolio of them still fits 64 bits.
constexpr int64_t kInfeasibleNs = std::numeric_limits<int64_t>::max() >> 20;

std::vector<Scheme> schemes_of(const cost::CostModel& cost, int world_size) {
  const cost::CostModel::Options& options = cost.options();
  std::vector<Scheme> schemes;
  for (int tp = 1; tp <= std::min(world_size, options.gpus_per_node); tp *= 2) {
    if (!options.layer_by_tp.contains(tp) || !model::tp_fault(options.shape, tp).empty()) continue;
    for (int pp = 1; tp * pp <= world_size && pp <= options.shape.layers; pp *= 2) {
      const Scheme scheme{.tp = tp, .pp = pp};
      if (cost.max_len_tokens(scheme, world_size) > 0) schemes.push_back(scheme);
    }
  }
  // The largest first, of equals the one with more TP.
  std::sort(schemes.begin(), schemes.end(), [](const Scheme& a, const Scheme& b) {
    return std::pair(a.ranks(), a.tp) > std::pair(b.ranks(), b.tp);
  });
  return schemes;
}

std::string term(int count, const Scheme& scheme) { return base::text(count, "x", to_text(scheme)); }

// A strategy's estimates over the samples.
struct Scored {
  Strategy strategy;
  int64_t max_len_tokens = 0;
  std::vector<int64_t> estimated_ns;
  int64_t total_ns() const { return std::accumulate(estimated_ns.begin(), estimated_ns.end(), int64_t{0}); }
};

Scored score(const Strategy& strategy, const ProposalOptions& options, const cost::CostModel& cost) {
  const Planner planner(
      {.world_size = options.world_size, .candidates = {strategy}, .effort = Effort::kQuick}, cost);
  Scored scored{.strategy = strategy, .max_len_tokens = planner.max_len_tokens()};
  for (size_t batch = 0; batch < options.sample_batches.size(); ++batch) {
    std::vector<strategy::Sequence> sequences;
    bool fits = true;
    for (const int64_t length : options.sample_batches[batch]) {
      sequences.push_back({.length_tokens = length});
      fits = fits && length <= scored.max_len_tokens;
    }
    scored.estimated_ns.push_back(fits ? planner.plan(static_cast<int64_t>(batch), sequences).estimated_ns
                                       : kInfeasibleNs);
  }
  return scored;
}

// Sum over samples of the least estimate when `next` joins those with estimates `best_ns`.
int64_t total_with(const std::vector<int64_t>& best_ns, const Scored& next) {
  int64_t total = 0;
  for (size_t i = 0; i < best_ns.size(); ++i) total += std::min(best_ns[i], next.estimated_ns[i]);
  return total;
}

std::vector<Scored> portfolio(std::vector<Scored> scored, const ProposalOptions& options) {
  std::stable_sort(scored.begin(), scored.end(),
                   [](const Scored& a, const Scored& b) { return a.total_ns() < b.total_ns(); });
  const auto holder = std::find_if(scored.begin(), scored.end(), [&](const Scored& candidate) {
    return candidate.max_len_tokens >= options.context_length;
  });
  std::vector<Scored> chosen = {*holder};
  std::vector<int64_t> best_ns = holder->estimated_ns;
  scored.erase(holder);
  while (static_cast<int>(chosen.size()) < options.max_strategies && !scored.empty()) {
    // The first of the best; without any gain that is the best of its own.
    const auto next = std::min_element(scored.begin(), scored.end(), [&](const Scored& a, const Scored& b) {
      return total_with(best_ns, a) < total_with(best_ns, b);
    });
    for (size_t i = 0; i < best_ns.size(); ++i) best_ns[i] = std::min(best_ns[i], next->estimated_ns[i]);
    chosen.push_back(*next);
    scored.erase(next);
  }
  return chosen;
}

std::vector<Proposal> proposals_of(const std::vector<Scored>& chosen) {
  const size_t batches = chosen.front().estimated_ns.size();
  std::vector<int> wins(chosen.size(), 0);
  for (size_t b = 0; b < batches; ++b) {
    const auto best = std::min_element(chosen.begin(), chosen.end(), [&](const Scored& x, const Scored& y) {
      return x.estimated_ns[b] < y.estimated_ns[b];
    });
    ++wins[static_cast<size_t>(best - chosen.begin())];
  }
  std::vector<Proposal> proposals;
  for (size_t i = 0; i < chosen.size(); ++i) {
    int64_t held = 0;
    int64_t total_ns = 0;
    for (const int64_t estimated_ns : chosen[i].estimated_ns) {
      if (estimated_ns == kInfeasibleNs) continue;
      ++held;
      total_ns += estimated_ns;
    }
    proposals.push_back(
        {.strategy = chosen[i].strategy,
         .max_len_tokens = chosen[i].max_len_tokens,
         .frequency = batches == 0 ? 0 : static_cast<double>(wins[i]) / static_cast<double>(batches),
         .mean_estimated_ns = held == 0 ? 0 : total_ns / held});
  }
  return proposals;
}

std::vector<Strategy> enumerate_strategies(const cost::CostModel& cost, int world_size) {
  const std::vector<Scheme> schemes = schemes_of(cost, world_size);
  std::vector<Strategy> strategies;
  const auto add = [&](const std::string& text) {
    strategies.push_back(strategy::parse_strategy(text, world_size));
  };
  for (size_t i = 0; i < schemes.size(); ++i) {
    const int fitting = world_size / schemes[i].ranks();
    add(term(fitting, schemes[i]));
    for (int count = 1; count <= fitting; count *= 2) {
      const int left = world_size - count * schemes[i].ranks();
      for (size_t j = i + 1; j < schemes.size(); ++j) {
        if (schemes[j].ranks() > left || schemes[j].ranks() == schemes[i].ranks()) continue;
        add(term(count, schemes[i]) + " + " + term(left / schemes[j].ranks(), schemes[j]));
      }
    }
  }
  return strategies;
}

}  // namespace

std::vector<Proposal> propose(const ProposalOptions& options, const cost::CostModel& cost) {
  SLUICE_ASSERT(options.max_strategies >= 1, "a proposal of no strategy");
  std::vector<Scored> scored;
  int64_t longest = 0;
  for (const Strategy& strategy : enumerate_strategies(cost, options.world_size)) {
    scored.push_back(score(strategy, options, cost));
    longest = std::max(longest, scored.back().max_len_tokens);
  }
  if (longest < options.context_length || scored.empty()) {
    throw base::InfeasibleError(base::text("no strategy on ", options.world_size,
                                           " ranks holds context_length ", options.context_length,
                                           ": the longest that fits is ", longest,
                                           " tokens: lower data.context_length, use more ranks or raise "
                                           "memory.device_gib"));
  }
  return proposals_of(portfolio(std::move(scored), options));
}

std::vector<Strategy> strategies_of(const std::vector<Proposal>& proposals) {
  std::vector<Strategy> strategies;
  for (const Proposal& proposal : proposals) strategies.push_back(proposal.strategy);
  return strategies;
}

}  // namespace sluice::plan
