#include "plan/mix_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sluice::plan {
namespace {

constexpr size_t kIdealBatches = 8;   // whose ideal shares are rounded
constexpr size_t kPairs = 16;         // of schemes, for each of these
constexpr size_t kMostRounded = 4;    // schemes of one ideal whose pipelines are rounded up and down
constexpr size_t kClimbBatches = 12;  // that moves are judged by
constexpr int kMostSweeps = 12;

// Evenly spread places of [0, size).
std::vector<size_t> spread(size_t size, size_t most) {
  const size_t count = std::min(size, most);
  std::vector<size_t> places;
  for (size_t i = 0; i < count; ++i) places.push_back((2 * i + 1) * size / (2 * count));
  return places;
}

// Lowest sums of the least times over some batches.
class Objective {
 public:
  Objective(const FluidTimes& fluid, std::span<const int64_t> best_ns, std::vector<size_t> batches)
      : fluid_(fluid), best_ns_(best_ns), batches_(std::move(batches)) {}

  // At least `limit_ns` where it is not less.
  int64_t total_ns(const Mix& mix, int64_t limit_ns) const {
    int64_t total_ns = 0;
    for (const size_t batch : batches_) {
      total_ns += std::min(best_ns_[batch], fluid_.estimate_ns(batch, mix, best_ns_[batch]));
      if (total_ns >= limit_ns) break;
    }
    return total_ns;
  }

 private:
  const FluidTimes& fluid_;
  std::span<const int64_t> best_ns_;
  std::vector<size_t> batches_;
};

}  // namespace

MixSearch::MixSearch(std::span<const SchemeCost> schemes, const FluidTimes& fluid, int ranks)
    : schemes_(schemes), fluid_(fluid), ranks_(ranks) {
  for (size_t k = 0; k < schemes.size(); ++k) {
    Mix mix(schemes.size(), 0);
    mix[k] = ranks / schemes[k].scheme().ranks();
    add_start(std::move(mix));
  }
  std::set<size_t> useful;
  for (const size_t batch : spread(fluid.batches(), kIdealBatches)) {
    for (const size_t k : fluid.useful(batch, ranks)) useful.insert(k);
  }
  useful_.assign(useful.begin(), useful.end());
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

void MixSearch::fill(Mix& mix) const {
  int left = ranks_ - ranks_of(mix, schemes_);
  for (const bool any : {false, true}) {
    for (size_t k = 0; k < mix.size(); ++k) {
      if (!any && mix[k] == 0) continue;
      const int more = left / schemes_[k].scheme().ranks();
      mix[k] += more;
      left -= more * schemes_[k].scheme().ranks();
    }
  }
}

void MixSearch::add_start(Mix mix) {
  if (ranks_of(mix, schemes_) > ranks_) return;
  fill(mix);
  if (max_len_tokens(mix, schemes_) > 0) starts_.insert(std::move(mix));
}

void MixSearch::add_rounded(const FluidTimes::Ideal& ideal) {
  Mix floors(schemes_.size(), 0);
  std::vector<std::pair<int64_t, size_t>> rests;  // ranks of the rest of a pipeline, largest first
  for (size_t k = 0; k < schemes_.size(); ++k) {
    floors[k] = static_cast<int>(ideal.milli_pipelines[k] / 1000);
    const int64_t rest = ideal.milli_pipelines[k] % 1000 * schemes_[k].scheme().ranks();
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

std::vector<Mix> MixSearch::neighbours(const Mix& mix) const {
  std::vector<Mix> next;
  const auto replace = [&](size_t from, int fewer, size_t to, int more) {
    Mix moved = mix;
    moved[from] -= fewer;
    moved[to] += more;
    next.push_back(std::move(moved));
  };
  for (size_t from = 0; from < mix.size(); ++from) {
    if (mix[from] == 0) continue;
    const int from_ranks = schemes_[from].scheme().ranks();
    for (const size_t to : useful_) {
      if (to == from) continue;
      const int to_ranks = schemes_[to].scheme().ranks();
      const int least = std::max(1, to_ranks / from_ranks);  // sizes are powers of two
      int fewer = least;
      for (; fewer < mix[from]; fewer *= 2) replace(from, fewer, to, fewer * from_ranks / to_ranks);
      const int all = mix[from] / least * least;
      if (all > 0) replace(from, all, to, all * from_ranks / to_ranks);
    }
  }
  return next;
}

std::vector<RatedMix> MixSearch::find(std::span<const int64_t> best_ns, int64_t least_max_len, int starts,
                                      size_t most) {
  const Objective some(fluid_, best_ns, spread(fluid_.batches(), kClimbBatches));
  std::set<RatedMix> seen;
  std::set<Mix> known;
  const auto rate = [&](const Mix& mix, int64_t limit_ns) {
    if (!known.insert(mix).second || max_len_tokens(mix, schemes_) < least_max_len) {
      return FluidTimes::kNever;
    }
    const int64_t total_ns = some.total_ns(mix, limit_ns);
    if (total_ns < limit_ns) seen.insert({total_ns, mix});
    if (seen.size() > 4 * most) seen.erase(std::prev(seen.end()));
    return total_ns;
  };
  const int64_t none = std::numeric_limits<int64_t>::max();
  for (const Mix& start : starts_) rate(start, none);
  std::vector<RatedMix> climbers(seen.begin(), seen.end());
  if (climbers.size() > static_cast<size_t>(starts)) climbers.resize(static_cast<size_t>(starts));
  for (RatedMix climber : climbers) {
    for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
      RatedMix best = climber;
      for (Mix& next : neighbours(climber.mix)) {
        const int64_t total_ns = rate(next, climber.total_ns + climber.total_ns / 100);
        if (total_ns < best.total_ns) best = {total_ns, std::move(next)};
      }
      if (best.total_ns == climber.total_ns) break;
      climber = std::move(best);
    }
  }
  // Over all batches.
  std::vector<size_t> every(fluid_.batches());
  std::iota(every.begin(), every.end(), size_t{0});
  const Objective whole(fluid_, best_ns, every);
  std::vector<RatedMix> found;
  for (const RatedMix& rated : seen) found.push_back({whole.total_ns(rated.mix, none), rated.mix});
  std::sort(found.begin(), found.end());
  if (found.size() > most) found.resize(most);
  return found;
}

}  // namespace sluice::plan
