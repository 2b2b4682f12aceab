#include "plan/mix_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/never.h"
#include "base/units.h"
#include "plan/batch_sample.h"

namespace sluice::plan {
namespace {

constexpr size_t kIdealBatches = 8;     // batches whose ideal shares are rounded
constexpr size_t kPairs = 16;           // pairs of schemes, for each of these batches
constexpr size_t kMostRounded = 4;      // schemes of one ideal whose pipelines are rounded up and down
constexpr size_t kClimbBatches = 24;    // batches that judge moves
constexpr int64_t kRunnerUpPart = 100;  // neighbours that are worse by less are kept as runners-up
constexpr int64_t kUnlikelyPart = 8;    // mixes whose estimates are worse by more are unlikely

}  // namespace

MixSearch::MixSearch(std::span<const SchemeCost> schemes, const FluidTimes& fluid, int ranks,
                     const MinStepOverhead& least_beside_ns)
    : schemes_(schemes), fluid_(fluid), ranks_(ranks), beside_ns_(schemes.size(), 0) {
  for (size_t k = 0; k < schemes.size(); ++k) add_start(all_of(k));
  climb_batches_ = spread(fluid.batches(), kClimbBatches);
  std::vector<size_t> all(schemes.size());
  std::iota(all.begin(), all.end(), size_t{0});
  for (const size_t batch : climb_batches_) {
    const auto ideal = fluid.ideal(batch, ranks, all);
    ideal_ns_.push_back(ideal ? ideal->time_ns : cost::kLongestNs);
  }
  std::set<size_t> useful;
  for (const size_t batch : spread(fluid.batches(), kIdealBatches)) {
    for (const size_t k : fluid.useful(batch, ranks)) useful.insert(k);
  }
  useful_.assign(useful.begin(), useful.end());
  int64_t least_ns = base::kNever;
  for (const size_t k : useful_) least_ns = std::min(least_ns, beside_ns_[k] = least_beside_ns(all_of(k)));
  for (const size_t k : useful_) beside_ns_[k] -= least_ns;
  for (const size_t batch : spread(fluid.batches(), kIdealBatches)) {
    if (const auto ideal = fluid.ideal(batch, ranks, useful_)) add_rounded(*ideal);
    std::vector<std::pair<int64_t, FluidTimes::Ideal>> pairs;
    for (size_t i = 0; i < useful_.size(); ++i) {
      for (size_t j = i + 1; j < useful_.size(); ++j) {
        const size_t pair[] = {useful_[i], useful_[j]};
        const auto ideal = fluid.ideal(batch, ranks, pair);
        if (ideal) pairs.emplace_back(ideal->time_ns, *ideal);
      }
    }
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    if (pairs.size() > kPairs) pairs.resize(kPairs);
    for (const auto& [time_ns, ideal] : pairs) add_rounded(ideal);
  }
}

Mix MixSearch::all_of(size_t scheme) const {
  Mix mix(schemes_.size(), 0);
  mix[scheme] = ranks_ / schemes_[scheme].scheme().ranks();
  return mix;
}

int64_t MixSearch::beside_ns(const Mix& mix) const {
  int64_t most_ns = 0;
  for (size_t k = 0; k < mix.size(); ++k) {
    if (mix[k] > 0) most_ns = std::max(most_ns, beside_ns_[k]);
  }
  return most_ns;
}

void MixSearch::add_start(Mix mix) {
  if (ranks_of(mix, schemes_) > ranks_) return;
  fill(mix, schemes_, ranks_);
  if (max_len_tokens(mix, schemes_) > 0) starts_.insert(std::move(mix));
}

void MixSearch::add_rounded(const FluidTimes::Ideal& ideal) {
  Mix floors(schemes_.size(), 0);
  std::vector<std::pair<int64_t, size_t>> rests;  // ranks of the rest of a pipeline, largest first
  for (size_t k = 0; k < schemes_.size(); ++k) {
    floors[k] = static_cast<int>(ideal.milli_pipelines[k] / base::kMilli);
    const int64_t rest = ideal.milli_pipelines[k] % base::kMilli * schemes_[k].scheme().ranks();
    if (rest > 0) rests.emplace_back(-rest, k);
  }
  std::stable_sort(rests.begin(), rests.end());
  if (rests.size() > kMostRounded) rests.resize(kMostRounded);
  for (unsigned up = 0; up < 1U << rests.size(); ++up) {
    Mix mix = floors;
    for (size_t i = 0; i < rests.size(); ++i) mix[rests[i].second] += static_cast<int>(up >> i & 1U);
    add_start(std::move(mix));
  }
}

// The scheme with most ranks.
size_t MixSearch::main_scheme(const Mix& mix) const {
  size_t most = 0;
  for (size_t k = 0; k < mix.size(); ++k) {
    if (mix[k] * schemes_[k].scheme().ranks() > mix[most] * schemes_[most].scheme().ranks()) most = k;
  }
  return most;
}

std::vector<Mix> MixSearch::neighbours(const Mix& mix) const {
  std::vector<Mix> next;
  const auto replace = [&](size_t from, int fewer, size_t to, int more) {
    Mix moved = mix;
    moved[from] -= fewer;
    moved[to] += more;
    fill(moved, schemes_, ranks_);
    next.push_back(std::move(moved));
  };
  for (size_t from = 0; from < mix.size(); ++from) {
    if (mix[from] == 0) continue;
    const int from_ranks = schemes_[from].scheme().ranks();
    for (const size_t to : useful_) {
      if (to == from) continue;
      const int to_ranks = schemes_[to].scheme().ranks();
      const int least = (to_ranks + from_ranks - 1) / from_ranks;
      int fewer = least;
      for (; fewer < mix[from]; fewer *= 2) replace(from, fewer, to, fewer * from_ranks / to_ranks);
      const int all = mix[from] / least * least;
      if (all > 0) replace(from, all, to, all * from_ranks / to_ranks);
    }
  }
  return next;
}

// Known estimates are not computed again.
int64_t MixSearch::estimate_ns(std::vector<Estimate>& known, size_t climb, const Mix& mix, int64_t limit_ns) {
  Estimate& estimate = known[climb];
  if (!estimate.is_exact && estimate.least_ns < limit_ns) {
    const int64_t beside = beside_ns(mix);
    const int64_t schedule_limit_ns = limit_ns == cost::kLongestNs ? cost::kLongestNs : limit_ns - beside;
    int64_t time_ns = fluid_.estimate_ns(climb_batches_[climb], mix, schedule_limit_ns, ideal_ns_[climb]);
    if (time_ns != cost::kLongestNs) time_ns += beside;
    estimate = {.least_ns = std::min(time_ns, limit_ns),
                .is_exact = time_ns != cost::kLongestNs || limit_ns == cost::kLongestNs};
  }
  return std::min(estimate.least_ns, limit_ns);
}

int64_t MixSearch::total_ns(const Mix& mix, std::span<const int64_t> best_ns, int64_t limit_ns) {
  std::vector<Estimate>& known = estimates_[mix];
  if (known.empty()) known.resize(climb_batches_.size());
  int64_t total_ns = 0;
  for (size_t climb = 0; climb < climb_batches_.size(); ++climb) total_ns += least_ns(climb, best_ns);
  for (size_t climb = 0; climb < climb_batches_.size() && total_ns < limit_ns; ++climb) {
    total_ns += estimate_ns(known, climb, mix, best_ns[climb_batches_[climb]]) - least_ns(climb, best_ns);
  }
  return total_ns;
}

std::vector<Mix> MixSearch::uniform(size_t most) {
  const std::vector<int64_t> unlimited_ns(fluid_.batches(), cost::kLongestNs);
  std::vector<std::pair<int64_t, size_t>> rated;  // total, scheme
  for (const size_t k : useful_) {
    if (ranks_ % schemes_[k].scheme().ranks() != 0) continue;
    const int64_t total = total_ns(all_of(k), unlimited_ns, base::kNever);
    if (total < cost::kLongestNs) rated.emplace_back(total, k);
  }
  std::ranges::sort(rated);
  const auto lane_of = [&](size_t k) {
    strategy::Scheme lane = schemes_[k].scheme();
    lane.cp = 1;
    return lane;
  };
  std::map<strategy::Scheme, size_t> widest;  // likely schemes only, by one lane's scheme
  for (const auto& [total, k] : rated) {
    if (total - rated.front().first > rated.front().first / kUnlikelyPart) break;
    size_t& of = widest.try_emplace(lane_of(k), k).first->second;
    if (schemes_[k].scheme().cp > schemes_[of].scheme().cp) of = k;
  }
  std::vector<size_t> order;
  const auto add = [&](size_t k) {
    if (std::ranges::find(order, k) == order.end()) order.push_back(k);
  };
  for (const auto& [total, k] : rated) {
    const auto of = widest.find(lane_of(k));
    if (of == widest.end()) continue;
    add(k);
    add(of->second);
    widest.erase(of);
  }
  for (const auto& [total, k] : rated) add(k);
  if (order.size() > most) order.resize(most);
  std::vector<Mix> mixes;
  for (const size_t k : order) mixes.push_back(all_of(k));
  return mixes;
}

std::vector<Mix> MixSearch::find(std::span<const int64_t> best_ns, int64_t least_max_len,
                                 std::span<const Mix> from, size_t starts, size_t most) {
  std::set<std::pair<int64_t, Mix>> seen;
  std::set<Mix> known;
  const auto rate = [&](const Mix& mix, int64_t limit_ns) {
    if (!known.insert(mix).second || max_len_tokens(mix, schemes_) < least_max_len) return base::kNever;
    const int64_t total = total_ns(mix, best_ns, limit_ns);
    if (total < limit_ns) seen.emplace(total, mix);
    if (seen.size() > most) seen.erase(std::prev(seen.end()));
    return total;
  };
  std::vector<std::pair<int64_t, Mix>> climbers;
  for (const Mix& start : starts_) climbers.emplace_back(rate(start, base::kNever), start);
  std::sort(climbers.begin(), climbers.end());
  // Starts with different main schemes: estimates that err about one scheme are right about another.
  std::set<size_t> kinds;
  std::erase_if(climbers, [&](const auto& climber) {
    return kinds.size() == starts || !kinds.insert(main_scheme(climber.second)).second;
  });
  for (const Mix& start : from) climbers.emplace_back(rate(start, base::kNever), start);
  std::vector<Mix> found;
  for (auto& [total, mix] : climbers) {
    if (total < base::kNever) found.push_back(mix);
    // A start without a total was rated before or holds too little: its neighbours compete alone.
    int64_t limit_ns = total < base::kNever ? total + total / kRunnerUpPart : 0;
    while (true) {
      int64_t least = total;
      Mix best;
      for (Mix& next : neighbours(mix)) {
        const int64_t next_total = rate(next, limit_ns);
        if (next_total >= least) continue;
        least = next_total;
        best = std::move(next);
      }
      if (best.empty()) break;
      total = least;
      limit_ns = total + total / kRunnerUpPart;
      mix = std::move(best);
    }
  }
  for (const auto& [total, mix] : seen) found.push_back(mix);
  return found;
}

}  // namespace sluice::plan
