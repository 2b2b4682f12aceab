#include "published/paper_propose.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cost/table_figures.h"
#include "plan/batch_sample.h"
#include "published/mix_judge.h"

namespace sluice::published {
namespace {

constexpr int64_t kInfinite = std::numeric_limits<int64_t>::max() / 4;
constexpr int64_t kParts = 10;
constexpr int64_t kStepTokens = 128;
constexpr int64_t kMostPlaces = 256;
constexpr int kTrials = 10;  // trials of Algorithm 1 for comparing strategies

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// The grid's lengths: 0, step, 2·step, … and the context length last.
std::vector<int64_t> grid_of(int64_t context_length) {
  const int64_t step = std::max(kStepTokens, divide_up(context_length, kMostPlaces));
  std::vector<int64_t> grid;
  for (int64_t length = 0; length < context_length; length += step) grid.push_back(length);
  grid.push_back(context_length);
  return grid;
}

// `sorted`: all lengths of the samples, ascending.
FractionalStrategies::Choice choice_of(const plan::SchemeCost& scheme, const std::vector<int64_t>& grid,
                                       const std::vector<int64_t>& sorted) {
  FractionalStrategies::Choice choice{.ranks = scheme.scheme().ranks(), .reach = 0, .work_ns = {0}};
  size_t next = 0;
  for (size_t place = 1; place < grid.size() && grid[place] <= scheme.max_len_tokens(); ++place) {
    int64_t work_ns = choice.work_ns.back();
    for (; next < sorted.size() && sorted[next] <= grid[place]; ++next) {
      work_ns += printed_ns(scheme, sorted[next]);
    }
    choice.work_ns.push_back(work_ns);
    choice.reach = static_cast<int>(place);
  }
  return choice;
}

// All distinct mixes, those of the longest length first.
std::vector<plan::Mix> all_mixes(const plan::PlannerOptions& options,
                                 std::span<const plan::SchemeCost> schemes) {
  std::vector<int64_t> sorted;
  for (const std::vector<int64_t>& batch : options.sample_batches) {
    sorted.insert(sorted.end(), batch.begin(), batch.end());
  }
  std::sort(sorted.begin(), sorted.end());
  const std::vector<int64_t> grid = grid_of(options.context_length);
  std::vector<FractionalStrategies::Choice> choices;
  for (const plan::SchemeCost& scheme : schemes) choices.push_back(choice_of(scheme, grid, sorted));
  const int places = static_cast<int>(grid.size()) - 1;
  const FractionalStrategies relaxed(std::move(choices), places, kParts);

  std::vector<std::vector<plan::Mix>> by_place;
  int64_t known_ns = 1;  // t grows with the length
  for (int place = 1; place <= places; ++place) {
    const std::optional<int64_t> time_ns = relaxed.time_ns(options.world_size * kParts, place, known_ns);
    if (!time_ns) break;
    known_ns = *time_ns;
    by_place.push_back(nearby_mixes(relaxed.pipelines(*time_ns, place), kParts, schemes, options.world_size,
                                    grid[static_cast<size_t>(place)]));
  }
  std::vector<plan::Mix> mixes;
  std::set<plan::Mix> seen;
  for (auto at = by_place.rbegin(); at != by_place.rend(); ++at) {
    for (const plan::Mix& mix : *at) {
      if (seen.insert(mix).second) mixes.push_back(mix);
    }
  }
  return mixes;
}

// A mix, and the sample batches on which it is best.
struct Judged {
  size_t mix = 0;
  int best_of = 0;
  plan::LongestRange longest;
};

// `judges`: by sample batch.
std::vector<Judged> judge(const std::vector<MixJudge>& judges, const std::vector<plan::Mix>& mixes,
                          const plan::PlannerOptions& options) {
  std::vector<Judged> judged;
  for (size_t mix = 0; mix < mixes.size(); ++mix) judged.push_back({.mix = mix});
  size_t best_mix = 0;
  for (size_t batch = 0; batch < judges.size() && !mixes.empty(); ++batch) {
    best_mix = judges[batch].best_of(mixes, best_mix);  // batches are similar
    Judged& best = judged[best_mix];
    ++best.best_of;
    const std::vector<int64_t>& lengths = options.sample_batches[batch];
    if (!lengths.empty()) best.longest.add(*std::ranges::max_element(lengths));
  }
  return judged;
}

plan::Proposal proposal_of(const std::vector<MixJudge>& judges, const Judged& judged, const plan::Mix& mix,
                           std::span<const plan::SchemeCost> schemes, const plan::PlannerOptions& options) {
  int64_t total_ns = 0, held = 0;
  for (const MixJudge& judge : judges) {
    const int64_t ns = judge.estimated_ns(mix);
    if (ns == MixJudge::kNever) continue;
    total_ns += ns;
    ++held;
  }
  const auto batches = static_cast<double>(std::max<size_t>(judges.size(), 1));
  return {.strategy = plan::strategy_of(mix, schemes, options.world_size),
          .max_len_tokens = max_len_tokens(mix, schemes),
          .frequency = judged.best_of / batches,
          .longest = judged.longest,
          .mean_estimated_ns = held == 0 ? 0 : total_ns / held};
}

}  // namespace

int64_t FractionalStrategies::cost_parts(const Choice& choice, int from, int to, int64_t time_ns) const {
  const int64_t work_ns = choice.work_ns[static_cast<size_t>(to)] - choice.work_ns[static_cast<size_t>(from)];
  return choice.ranks * std::max<int64_t>(1, divide_up(work_ns * parts_, time_ns));
}

FractionalStrategies::FractionalStrategies(std::vector<Choice> choices, int places, int64_t parts)
    : choices_(std::move(choices)), places_(places), parts_(parts), least_work_ns_(1, 0) {
  for (int place = 1; place <= places_; ++place) {
    const auto at = static_cast<size_t>(place);
    int64_t least_ns = kInfinite;
    bool any = false;
    for (const Choice& choice : choices_) {
      if (choice.reach < place) continue;
      const int64_t own_ns = choice.work_ns[at] - choice.work_ns[at - 1];
      least_ns = std::min(least_ns, choice.ranks * own_ns);
      any = any || own_ns > 0;
    }
    if (least_ns == kInfinite) break;
    if (any) starts_.push_back(place);
    least_work_ns_.push_back(least_work_ns_.back() + least_ns);
  }
}

std::vector<int64_t> FractionalStrategies::fewest_parts(int64_t time_ns, int places) const {
  std::vector<int64_t> fewest(static_cast<size_t>(places) + 1, kInfinite);
  fewest[0] = 0;
  auto starts_end = starts_.begin();
  for (int to = 1; to <= places; ++to) {
    while (starts_end != starts_.end() && *starts_end < to) ++starts_end;
    int64_t& best = fewest[static_cast<size_t>(to)];
    for (const Choice& choice : choices_) {
      if (choice.reach < to) continue;
      const int64_t all_ns = choice.work_ns[static_cast<size_t>(to)];
      int64_t within_ns = time_ns;  // largest work for which `cost` suffices
      int64_t cost = choice.ranks;
      for (auto start = starts_end; cost < best; --start) {
        const auto from = static_cast<size_t>(start == starts_.begin() ? 0 : *(start - 1));
        const int64_t work_ns = (all_ns - choice.work_ns[from]) * parts_;
        if (work_ns > within_ns) {
          const int64_t pipelines = divide_up(work_ns, time_ns);
          within_ns = pipelines * time_ns;
          cost = choice.ranks * pipelines;
          if (cost >= best) break;  // it only grows
        }
        best = std::min(best, fewest[from] + cost);
        if (start == starts_.begin()) break;
      }
    }
  }
  return fewest;
}

std::optional<int64_t> FractionalStrategies::time_ns(int64_t n, int place, int64_t at_least) const {
  SLUICE_ASSERT(place >= 1 && place <= places_ && at_least >= 1, base::text("place ", place));
  const auto ends_by = [&](int64_t time_ns) { return fewest_parts(time_ns, place).back() <= n; };
  int64_t most_ns = 1;
  for (const Choice& choice : choices_) {
    if (choice.reach >= place) most_ns = std::max(most_ns, choice.work_ns[static_cast<size_t>(place)]);
  }
  if (static_cast<size_t>(place) < least_work_ns_.size() && n > 0) {
    at_least = std::max(at_least, divide_up(least_work_ns_[static_cast<size_t>(place)] * parts_, n));
  }
  most_ns = std::max(at_least, most_ns * parts_);
  if (ends_by(at_least)) return at_least;
  int64_t low = at_least;  // too short
  int64_t high = low + 1 + low / 256;
  while (!ends_by(std::min(high, most_ns))) {
    if (high >= most_ns) return std::nullopt;
    const int64_t reached = std::min(high, most_ns);
    high = reached + 2 * (reached - low) + 1;
    low = reached;
  }
  high = std::min(high, most_ns);
  while (high - low > 1 + (high >> 20)) {
    const int64_t middle = low + (high - low) / 2;
    (ends_by(middle) ? high : low) = middle;
  }
  return high;
}

std::vector<int64_t> FractionalStrategies::pipelines(int64_t time_ns, int place) const {
  std::vector<int64_t> result(choices_.size(), 0);
  for (int to = place; to > 0;) {
    const std::vector<int64_t> fewest = fewest_parts(time_ns, to);
    int from = to;
    for (size_t k = 0; k < choices_.size() && from == to; ++k) {
      if (choices_[k].reach < to) continue;
      for (int s = 0; s < to && from == to; ++s) {
        const int64_t cost = cost_parts(choices_[k], s, to, time_ns);
        if (fewest[static_cast<size_t>(s)] + cost != fewest.back()) continue;
        result[k] += cost / choices_[k].ranks;
        from = s;
      }
    }
    SLUICE_ASSERT(from < to, "no interval attains the fewest GPUs");
    // The shorter lengths get the remaining GPUs, and are as fast as these allow.
    if (from > 0) time_ns = *this->time_ns(fewest[static_cast<size_t>(from)], from);
    to = from;
  }
  return result;
}

std::vector<plan::Mix> nearby_mixes(std::span<const int64_t> pipeline_parts, int64_t parts,
                                    std::span<const plan::SchemeCost> schemes, int world_size,
                                    int64_t longest) {
  std::vector<size_t> fractions;
  plan::Mix down(pipeline_parts.size(), 0);
  for (size_t k = 0; k < pipeline_parts.size(); ++k) {
    down[k] = static_cast<int>(pipeline_parts[k] / parts);
    if (pipeline_parts[k] % parts != 0) fractions.push_back(k);
  }
  SLUICE_ASSERT(fractions.size() < 20, base::text(fractions.size(), " fractions"));
  std::set<plan::Mix> mixes;
  for (size_t choice = 0; choice < size_t{1} << fractions.size(); ++choice) {
    plan::Mix mix = down;
    for (size_t i = 0; i < fractions.size(); ++i) mix[fractions[i]] += static_cast<int>(choice >> i & 1);
    while (plan::ranks_of(mix, schemes) > world_size) {
      // Keep the last pipeline that holds the longest length.
      const auto holders = [&](const plan::Mix& of) {
        int count = 0;
        for (size_t k = 0; k < of.size(); ++k) count += schemes[k].max_len_tokens() >= longest ? of[k] : 0;
        return count;
      };
      size_t most = mix.size();
      for (size_t k = 0; k < mix.size(); ++k) {
        const bool last = schemes[k].max_len_tokens() >= longest && holders(mix) == 1;
        if (mix[k] > 0 && !last && (most == mix.size() || mix[k] > mix[most])) most = k;
      }
      if (most == mix.size()) break;
      --mix[most];
    }
    if (plan::ranks_of(mix, schemes) <= world_size && max_len_tokens(mix, schemes) >= longest)
      mixes.insert(mix);
  }
  std::vector<plan::Mix> result;
  for (const plan::Mix& mix : mixes) {
    const bool dominated = std::any_of(mixes.begin(), mixes.end(), [&](const plan::Mix& other) {
      return other != mix && std::equal(mix.begin(), mix.end(), other.begin(), std::less_equal<>());
    });
    if (!dominated) result.push_back(mix);
  }
  return result;
}

base::Feasible<std::vector<plan::Proposal>> paper_propose(const plan::PlannerOptions& given,
                                                          const cost::CostModel& cost) {
  SLUICE_ASSERT(given.max_strategies >= 1 && given.context_length >= 1, "a proposal of no strategy");
  plan::PlannerOptions options = given;
  options.sample_batches = plan::few_batches(given.sample_batches, plan::kMostSampleTokens);
  std::vector<plan::SchemeCost> schemes = plan::usable_schemes(cost, options.world_size, 1);
  std::erase_if(schemes,
                [&](const plan::SchemeCost& known) { return cost::is_derived(cost, known.scheme()); });
  if (auto none = plan::no_scheme_fits(options.context_length, schemes, options.world_size))
    return std::move(*none);
  const std::vector<plan::Mix> mixes = all_mixes(options, schemes);
  std::vector<MixJudge> judges;
  for (const std::vector<int64_t>& batch : options.sample_batches)
    judges.emplace_back(batch, schemes, DispatchOptions{.trials = kTrials});
  std::vector<Judged> judged = judge(judges, mixes, options);
  const auto holder = std::max_element(judged.begin(), judged.end(), [&](const Judged& a, const Judged& b) {
    const auto rank = [&](const Judged& of) {
      return max_len_tokens(mixes[of.mix], schemes) >= options.context_length ? of.best_of : -1;
    };
    return rank(a) < rank(b);
  });
  std::rotate(judged.begin(), holder, holder + 1);
  std::stable_sort(judged.begin() + 1, judged.end(),
                   [](const Judged& a, const Judged& b) { return a.best_of > b.best_of; });
  std::vector<plan::Proposal> proposals;
  for (const Judged& each : judged) {
    if (static_cast<int>(proposals.size()) == options.max_strategies) break;
    proposals.push_back(proposal_of(judges, each, mixes[each.mix], schemes, options));
  }
  return proposals;
}

}  // namespace sluice::published
