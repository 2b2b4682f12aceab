#include "plan/proposal.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "plan/mix_search.h"
#include "plan/planner.h"

namespace sluice::plan {
namespace {

using strategy::Strategy;

constexpr int64_t kNever = FluidTimes::kNever;
constexpr int kStarts = 4;
constexpr int kFinalists = 6;          // for each place in the portfolio
constexpr int kWinners = 2;            // of these are planned on every batch that they could win
constexpr size_t kProbes = 6;          // batches that each finalist is planned on
constexpr int64_t kLeastGain = 2'000;  // a member lowers the sum by one part in so many, or none is added

int64_t scaled(int64_t value, int64_t numerator, int64_t denominator) {
  return static_cast<int64_t>(cost::Wide{value} * numerator / denominator);
}

// A mix and its times by batch: planned ones, and elsewhere estimates corrected by what planning told.
class Judged {
 public:
  Judged(RatedMix rated, const std::vector<SchemeCost>& schemes, const FluidTimes& fluid,
         const std::vector<std::vector<strategy::Sequence>>& batches, const ProposalOptions& options,
         const cost::CostModel& cost)
      : mix(std::move(rated.mix)),
        strategy(strategy_of(mix, schemes, options.world_size)),
        longest(max_len_tokens(mix, schemes)),
        batches_(&batches),
        planner_(std::make_unique<Planner>(
            PlannerOptions{
                .world_size = options.world_size, .candidates = {strategy}, .effort = Effort::kQuick},
            cost)),
        planned_(batches.size(), false) {
    for (size_t b = 0; b < batches.size(); ++b) fluid_ns_.push_back(fluid.estimate_ns(b, mix));
  }

  bool holds(size_t batch) const { return fluid_ns_[batch] != kNever; }
  int64_t time_ns(size_t batch) const {
    if (!holds(batch)) return kNever;
    if (planned_[batch]) return planned_ns_.at(batch);
    return sum_fluid_ns_ == 0 ? fluid_ns_[batch] : scaled(fluid_ns_[batch], sum_planned_ns_, sum_fluid_ns_);
  }
  void plan(size_t batch) {
    if (!holds(batch) || planned_[batch]) return;
    if (planned_ns_.empty()) planned_ns_.resize(planned_.size(), 0);
    const int64_t time_ns = planner_->plan(static_cast<int64_t>(batch), (*batches_)[batch]).estimated_ns;
    planned_[batch] = true;
    planned_ns_[batch] = time_ns;
    sum_planned_ns_ += time_ns;
    sum_fluid_ns_ += fluid_ns_[batch];
  }
  int64_t sum_planned_ns() const { return sum_planned_ns_; }
  int64_t sum_fluid_ns() const { return sum_fluid_ns_; }
  // The sum of each batch's least time when this joins those with times `best_ns`.
  int64_t total_with(const std::vector<int64_t>& best_ns) const {
    int64_t total_ns = 0;
    for (size_t b = 0; b < best_ns.size(); ++b) total_ns += std::min(best_ns[b], time_ns(b));
    return total_ns;
  }

  Mix mix;
  Strategy strategy;
  int64_t longest = 0;

 private:
  const std::vector<std::vector<strategy::Sequence>>* batches_;
  std::unique_ptr<Planner> planner_;
  std::vector<int64_t> fluid_ns_;
  std::vector<int64_t> planned_ns_;
  std::vector<bool> planned_;
  int64_t sum_planned_ns_ = 0;
  int64_t sum_fluid_ns_ = 0;
};

class Portfolio {
 public:
  Portfolio(const ProposalOptions& options, const cost::CostModel& cost, std::vector<SchemeCost> schemes)
      : options_(options),
        cost_(cost),
        schemes_(std::move(schemes)),
        fluid_(schemes_, options.sample_batches),
        search_(schemes_, fluid_, options.world_size) {
    for (const std::vector<int64_t>& lengths : options.sample_batches) {
      std::vector<strategy::Sequence>& batch = batches_.emplace_back();
      for (const int64_t length : lengths) batch.push_back({.length_tokens = length});
    }
  }

  void choose() {
    while (static_cast<int>(members_.size()) < options_.max_strategies && add_member()) {
    }
    while (exchange_member()) {
    }
  }
  std::vector<Proposal> proposals() const;

 private:
  std::vector<int64_t> best_without(size_t left_out) const {
    std::vector<int64_t> best_ns(batches_.size(), kNever);
    for (size_t m = 0; m < members_.size(); ++m) {
      if (m == left_out) continue;
      for (size_t b = 0; b < best_ns.size(); ++b) {
        best_ns[b] = std::min(best_ns[b], judged_[members_[m]].time_ns(b));
      }
    }
    return best_ns;
  }
  std::vector<int64_t> best() const { return best_without(members_.size()); }
  int64_t least_max_len(size_t place) const { return place == 0 ? options_.context_length : 0; }

  void judge(const std::vector<int64_t>& best_ns);
  std::vector<size_t> ranking(const std::vector<int64_t>& best_ns) const;
  bool add_member();
  bool exchange_member();

  const ProposalOptions& options_;
  const cost::CostModel& cost_;
  std::vector<SchemeCost> schemes_;
  FluidTimes fluid_;
  MixSearch search_;
  std::vector<std::vector<strategy::Sequence>> batches_;
  std::vector<Judged> judged_;
  std::vector<size_t> members_;  // of judged_; the first holds the context
};

// Judged mixes that may take the next place, the best first.
std::vector<size_t> Portfolio::ranking(const std::vector<int64_t>& best_ns) const {
  std::vector<std::pair<int64_t, size_t>> order;
  for (size_t i = 0; i < judged_.size(); ++i) {
    if (judged_[i].longest < least_max_len(members_.size())) continue;
    order.emplace_back(judged_[i].total_with(best_ns), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<size_t> ranked;
  for (const auto& [total_ns, i] : order) ranked.push_back(i);
  return ranked;
}

// Plans with what the search finds for the next place: some batches that each could win, then, of the best,
// all of them.
void Portfolio::judge(const std::vector<int64_t>& best_ns) {
  int64_t planned_ns = 0;
  int64_t fluid_ns = 0;
  for (const Judged& judged : judged_) {
    planned_ns += judged.sum_planned_ns();
    fluid_ns += judged.sum_fluid_ns();
  }
  std::vector<int64_t> limits_ns = best_ns;
  for (int64_t& limit_ns : limits_ns) {
    if (limit_ns != kNever && planned_ns > 0) limit_ns = scaled(limit_ns, fluid_ns, planned_ns);
  }
  const int factor = options_.thoroughness;
  for (RatedMix& rated : search_.find(limits_ns, least_max_len(members_.size()), kStarts * factor,
                                      static_cast<size_t>(kFinalists * factor))) {
    const bool known = std::any_of(judged_.begin(), judged_.end(),
                                   [&](const Judged& judged) { return judged.mix == rated.mix; });
    if (known) continue;
    judged_.emplace_back(std::move(rated), schemes_, fluid_, batches_, options_, cost_);
    Judged& judged = judged_.back();
    std::vector<size_t> winnable;
    for (size_t b = 0; b < batches_.size(); ++b) {
      if (judged.holds(b) && judged.time_ns(b) < best_ns[b]) winnable.push_back(b);
    }
    const size_t probes = std::min(winnable.size(), kProbes * static_cast<size_t>(factor));
    for (size_t i = 0; i < probes; ++i) judged.plan(winnable[(2 * i + 1) * winnable.size() / (2 * probes)]);
  }
  const std::vector<size_t> ranked = ranking(best_ns);
  for (size_t place = 0; place < std::min(ranked.size(), static_cast<size_t>(kWinners * factor)); ++place) {
    Judged& judged = judged_[ranked[place]];
    for (size_t b = 0; b < batches_.size(); ++b) {
      if (judged.time_ns(b) - judged.time_ns(b) / 16 < best_ns[b]) judged.plan(b);
    }
  }
}

bool Portfolio::add_member() {
  const std::vector<int64_t> best_ns = best();
  judge(best_ns);
  const std::vector<size_t> ranked = ranking(best_ns);
  const int64_t before_ns = std::accumulate(best_ns.begin(), best_ns.end(), int64_t{0});
  const int64_t gain_ns = before_ns - judged_[ranked.front()].total_with(best_ns);
  if (!members_.empty() && gain_ns <= before_ns / kLeastGain) return false;
  members_.push_back(ranked.front());
  return true;
}

// The first exchange that gains, place by place.
bool Portfolio::exchange_member() {
  const std::vector<int64_t> best_ns = best();
  const int64_t now_ns = std::accumulate(best_ns.begin(), best_ns.end(), int64_t{0});
  for (size_t place = 0; place < members_.size(); ++place) {
    const std::vector<int64_t> rest_ns = best_without(place);
    for (size_t i = 0; i < judged_.size(); ++i) {
      if (judged_[i].longest < least_max_len(place)) continue;
      if (judged_[i].total_with(rest_ns) >= now_ns - now_ns / kLeastGain) continue;
      for (size_t b = 0; b < batches_.size(); ++b) {
        if (judged_[i].time_ns(b) < rest_ns[b]) judged_[i].plan(b);
      }
      if (judged_[i].total_with(rest_ns) >= now_ns - now_ns / kLeastGain) continue;
      members_[place] = i;
      return true;
    }
  }
  return false;
}

std::vector<Proposal> Portfolio::proposals() const {
  std::vector<int> wins(members_.size(), 0);
  for (size_t b = 0; b < batches_.size(); ++b) {
    const auto best = std::min_element(members_.begin(), members_.end(), [&](size_t x, size_t y) {
      return judged_[x].time_ns(b) < judged_[y].time_ns(b);
    });
    ++wins[static_cast<size_t>(best - members_.begin())];
  }
  std::vector<Proposal> proposals;
  for (size_t m = 0; m < members_.size(); ++m) {
    const Judged& judged = judged_[members_[m]];
    int64_t held = 0;
    int64_t total_ns = 0;
    for (size_t b = 0; b < batches_.size(); ++b) {
      if (!judged.holds(b)) continue;
      ++held;
      total_ns += judged.time_ns(b);
    }
    proposals.push_back(
        {.strategy = judged.strategy,
         .max_len_tokens = judged.longest,
         .frequency =
             batches_.empty() ? 0 : static_cast<double>(wins[m]) / static_cast<double>(batches_.size()),
         .mean_estimated_ns = held == 0 ? 0 : total_ns / held});
  }
  return proposals;
}

}  // namespace

std::vector<Proposal> propose(const ProposalOptions& options, const cost::CostModel& cost) {
  SLUICE_ASSERT(options.max_strategies >= 1 && options.thoroughness >= 1, "a proposal of no strategy");
  std::vector<SchemeCost> schemes = usable_schemes(cost, options.world_size, options.max_cp);
  require_held(options.context_length, schemes, options.world_size);
  Portfolio portfolio(options, cost, std::move(schemes));
  portfolio.choose();
  return portfolio.proposals();
}

std::vector<Strategy> strategies_of(const std::vector<Proposal>& proposals) {
  std::vector<Strategy> strategies;
  for (const Proposal& proposal : proposals) strategies.push_back(proposal.strategy);
  return strategies;
}

}  // namespace sluice::plan
