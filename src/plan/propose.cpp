#include "plan/propose.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/never.h"
#include "plan/batch_sample.h"
#include "plan/judged_mix.h"
#include "plan/mix_search.h"
#include "plan/precision.h"

namespace sluice::plan {
namespace {

using strategy::Strategy;

// Numbers of single-scheme mixes looked at, of starts and finalists
// of each place's search, and of candidates for a place at the end.
constexpr size_t kBreadth = 8;
constexpr size_t kProbed = 6;         // for each place, until a probed one is best
constexpr int kFewest = 5;            // suffices for batches outside the sample
constexpr int kMostRanks = 1024;      // in a part
constexpr int64_t kHopelessPart = 2;  // limit: a batch's best plan plus this part of it
constexpr int64_t kLosingPart = 16;   // likewise, of a batch's best plan or of the least sum over batches

int64_t sum(const std::vector<int64_t>& times_ns) {
  return std::accumulate(times_ns.begin(), times_ns.end(), int64_t{0});
}

int64_t mean_tokens(const std::vector<std::vector<int64_t>>& batches) {
  int64_t tokens = 0;
  for (const std::vector<int64_t>& lengths : batches) tokens += sum(lengths);
  return tokens / std::max<int64_t>(1, std::ssize(batches));
}

// The searched part: one of several equal parts of the machine; some ranks may be left over.
struct SearchedPart {
  int copies = 1;
  int ranks = 1;
  std::vector<SchemeCost> schemes;
};

// A part has whole nodes if there are several. Lanes share parameters until they hold `tokens_a_rank`.
SearchedPart part_of(const PlannerOptions& options, const cost::CostModel& cost, int copies,
                     int64_t tokens_a_rank) {
  int ranks = options.world_size / copies;
  const int node = cost.options().topology.node_ranks();
  if (copies > 1 && ranks > node) ranks -= ranks % node;
  return {.copies = copies,
          .ranks = ranks,
          .schemes = schemes_to_search(
              cost, ranks,
              {.max_cp = options.max_cp, .max_fsdp = options.max_fsdp, .tokens_a_rank = tokens_a_rank})};
}

// The smallest part that holds the context. If none does: all
// ranks, with lanes that share parameters for the longest sequence.
SearchedPart part_to_search(const PlannerOptions& options, const cost::CostModel& cost) {
  const int64_t mean = mean_tokens(options.sample_batches) / options.world_size;
  const auto holds = [&](const SearchedPart& part) {
    return !no_scheme_fits(options.context_length, part.schemes, part.ranks);
  };
  for (int copies = (options.world_size + kMostRanks - 1) / kMostRanks; copies > 1; copies /= 2) {
    SearchedPart part = part_of(options, cost, copies, mean);
    if (holds(part)) return part;
  }
  SearchedPart whole = part_of(options, cost, 1, mean);
  const int64_t of_longest = options.context_length / options.world_size;
  return holds(whole) || of_longest <= mean ? whole : part_of(options, cost, 1, of_longest);
}

// A part's share of each batch: every copies-th sequence from the
// longest down. The longest is always in, because some part has it.
std::vector<std::vector<int64_t>> parts_of(std::vector<std::vector<int64_t>> batches, int copies) {
  if (copies == 1) return batches;
  const auto stride = static_cast<size_t>(copies);
  for (std::vector<int64_t>& lengths : batches) {
    std::ranges::sort(lengths, std::greater<>());
    std::vector<int64_t> part;
    for (size_t i = 0; i < lengths.size(); i = i == 0 ? stride / 2 : i + stride) part.push_back(lengths[i]);
    lengths = std::move(part);
  }
  return batches;
}

class Portfolio {
 public:
  Portfolio(const PlannerOptions& options, const cost::CostModel& cost, SearchedPart part)
      : options_(options),
        copies_(part.copies),
        inputs_(options, part.ranks, std::move(part.schemes),
                parts_of(few_batches(options.sample_batches,
                                     kMostSampleTokens * options.thoroughness * part.copies),
                         part.copies),
                cost),
        search_(inputs_.schemes, inputs_.fluid, part.ranks,
                [&](const Mix& mix) { return inputs_.min_step_overhead_ns(mix); }) {}

  void choose() {
    judge_uniform();
    judge_all_shared();
    while (static_cast<int>(members_.size()) < options_.max_strategies && add_member()) {
    }
    int64_t before_ns = 0;
    int64_t now_ns = sum(best());
    do {
      before_ns = now_ns;
      improve_members();
      now_ns = sum(best());
    } while (now_ns < before_ns);
    while (exchange_member()) {
    }
    drop_idle_members();
    const int fewest = std::min(kFewest, options_.max_strategies);
    while (static_cast<int>(members_.size()) < fewest && add_spare()) {
    }
  }
  std::vector<Proposal> proposals() const;

 private:
  std::vector<int64_t> best_without(size_t left_out) const {
    std::vector<int64_t> best_ns(inputs_.batches.size(), cost::kLongestNs);
    for (size_t m = 0; m < members_.size(); ++m) {
      if (m == left_out) continue;
      for (size_t b = 0; b < best_ns.size(); ++b) {
        best_ns[b] = std::min(best_ns[b], judged_[members_[m]].time_ns(b, least_));
      }
    }
    return best_ns;
  }
  std::vector<int64_t> best() const { return best_without(members_.size()); }
  int64_t least_max_len(size_t place) const { return place == 0 ? options_.context_length : 0; }

  size_t times(size_t count) const { return count * static_cast<size_t>(options_.thoroughness); }
  int64_t total_with(size_t judged, const std::vector<int64_t>& best_ns) const {
    return judged_[judged].total_with(best_ns, least_);
  }

  std::vector<int64_t> planned_and(int64_t part) const;
  LosingTimes losing() const;
  void judge(Mix mix);
  void judge_uniform();
  void judge_all_shared();
  void update_least();
  void tell_progress() const;
  void widen(const std::vector<int64_t>& best_ns, size_t place);
  std::vector<size_t> ranking(const std::vector<int64_t>& best_ns, size_t place) const;
  size_t leader(const std::vector<int64_t>& best_ns, size_t place);
  bool add_member();
  bool add_leader(const std::vector<int64_t>& best_ns);
  void improve_members();
  void plan_members();
  bool exchange_member();
  void drop_idle_members();
  bool add_spare();

  // The mix of all parts together.
  Mix whole(Mix mix) const;

  const PlannerOptions& options_;
  int copies_;
  JudgingInputs inputs_;
  MixSearch search_;
  std::vector<JudgedMix> judged_;
  PlannedPart least_;            // the least ratio of all judged mixes: others may be as good
  std::vector<size_t> members_;  // indices into judged_; the first holds the context
};

// By batch: the best plan's time plus a part of it; cost::kLongestNs without plans.
std::vector<int64_t> Portfolio::planned_and(int64_t part) const {
  std::vector<int64_t> limits_ns(inputs_.batches.size(), cost::kLongestNs);
  for (const JudgedMix& judged : judged_) {
    for (size_t b = 0; b < limits_ns.size(); ++b) limits_ns[b] = std::min(limits_ns[b], judged.planned_ns(b));
  }
  for (int64_t& limit_ns : limits_ns) {
    if (limit_ns != cost::kLongestNs) limit_ns += limit_ns / part;
  }
  return limits_ns;
}

LosingTimes Portfolio::losing() const {
  return inputs_.coarse ? LosingTimes{.steps_ns = planned_and(kLosingPart)} : LosingTimes{};
}

void Portfolio::judge(Mix mix) {
  if (std::ranges::find(judged_, mix, &JudgedMix::mix) != judged_.end()) return;
  const std::vector<int64_t> hopeless_ns = planned_and(kHopelessPart);
  const LosingTimes lost = losing();
  judged_.emplace_back(std::move(mix), inputs_);
  judged_.back().probe_held(hopeless_ns, lost);
  update_least();
}

// Judges mixes of one scheme by plans of a few batches: estimates are least reliable for wide pipelines.
void Portfolio::judge_uniform() {
  for (Mix& mix : search_.uniform(times(kBreadth))) judge(std::move(mix));
}

// One pipeline whose lanes all share pulls and pushes nothing; estimates don't reflect this.
void Portfolio::judge_all_shared() {
  for (size_t k = 0; k < inputs_.schemes.size(); ++k) {
    const strategy::Scheme& scheme = inputs_.schemes[k].scheme();
    if (scheme.fsdp == 1 || scheme.tp * scheme.fsdp != inputs_.ranks) continue;
    Mix mix(inputs_.schemes.size(), 0);
    mix[k] = 1;
    judge(std::move(mix));
  }
}

void Portfolio::update_least() {
  least_ = {};
  for (const JudgedMix& judged : judged_) {
    const PlannedPart& part = judged.planned_part();
    if (!part.known()) continue;
    const int64_t beside_ns =
        least_.known() ? std::min(least_.step_overhead_ns, part.step_overhead_ns) : part.step_overhead_ns;
    if (!least_.known() || part < least_) least_ = part;
    least_.step_overhead_ns = beside_ns;
  }
  tell_progress();
}

void Portfolio::tell_progress() const {
  if (!options_.progress) return;
  int64_t steps = 0;
  for (const JudgedMix& judged : judged_) steps += judged.planned_batches();
  options_.progress(std::ssize(judged_), steps);
}

// Mixes that may take a place and are not members elsewhere, the best first.
std::vector<size_t> Portfolio::ranking(const std::vector<int64_t>& best_ns, size_t place) const {
  std::vector<std::pair<int64_t, size_t>> order;
  for (size_t i = 0; i < judged_.size(); ++i) {
    const auto has = std::ranges::find(members_, i);
    const bool elsewhere = has != members_.end() && has - members_.begin() != static_cast<ptrdiff_t>(place);
    if (!elsewhere && judged_[i].max_len_tokens() >= least_max_len(place))
      order.emplace_back(total_with(i, best_ns), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<size_t> ranked;
  for (const auto& [total_ns, i] : order) ranked.push_back(i);
  return ranked;
}

// The best mix for a place after the best-looking ones were probed. REQUIRES: some mix may take it.
size_t Portfolio::leader(const std::vector<int64_t>& best_ns, size_t place) {
  for (size_t probed = 0;; ++probed) {
    const std::vector<size_t> ranked = ranking(best_ns, place);
    if (judged_[ranked.front()].probed()) return ranked.front();
    const auto known = std::ranges::find_if(ranked, [&](size_t i) { return judged_[i].probed(); });
    if (probed >= times(kProbed) && known != ranked.end()) return *known;
    LosingTimes lost = losing();
    if (inputs_.coarse && known != ranked.end()) {
      const int64_t least_ns = total_with(*known, best_ns);
      lost.total_ns = std::min(sum(best_ns), least_ns + least_ns / kLosingPart);
    }
    judged_[ranked.front()].probe(best_ns, least_, lost);
    update_least();
  }
}

// Judges the mixes that the search finds for a place.
void Portfolio::widen(const std::vector<int64_t>& best_ns, size_t place) {
  std::vector<Mix> from;
  if (place < members_.size()) from.push_back(judged_[members_[place]].mix());
  std::vector<int64_t> limits_ns = best_ns;
  for (int64_t& limit_ns : limits_ns) {
    if (limit_ns != cost::kLongestNs) limit_ns = least_.estimate(limit_ns);
  }
  for (Mix& mix : search_.find(limits_ns, least_max_len(place), from, times(kBreadth), times(kBreadth))) {
    const bool known = std::ranges::any_of(judged_, [&](const JudgedMix& of) { return of.mix() == mix; });
    if (!known) judged_.emplace_back(std::move(mix), inputs_);
  }
}

bool Portfolio::add_member() {
  const std::vector<int64_t> best_ns = best();
  widen(best_ns, members_.size());
  return add_leader(best_ns);
}

// Adds the leader if it gains; the first always does.
bool Portfolio::add_leader(const std::vector<int64_t>& best_ns) {
  if (members_.size() == judged_.size()) return false;
  const size_t next = leader(best_ns, members_.size());
  const int64_t before_ns = sum(best_ns);
  if (!members_.empty() && before_ns - total_with(next, best_ns) <= before_ns / kNegligiblePart) return false;
  members_.push_back(next);
  return true;
}

// Gives each place in turn the mix that is best beside the others.
void Portfolio::improve_members() {
  for (size_t place = 0; place < members_.size(); ++place) {
    const std::vector<int64_t> rest_ns = best_without(place);
    widen(rest_ns, place);
    members_[place] = leader(rest_ns, place);
  }
}

// Plans every batch on which a member seems best, until plans change nothing: they may make others seem best.
void Portfolio::plan_members() {
  int64_t before_ns = 0;
  int64_t now_ns = sum(best());
  do {
    before_ns = now_ns;
    for (size_t place = 0; place < members_.size(); ++place) {
      judged_[members_[place]].plan_winnable(best_without(place), least_, base::kNever);
    }
    update_least();
    now_ns = sum(best());
  } while (now_ns != before_ns);
}

// Makes the first exchange or addition that gains by plans alone, place by place.
bool Portfolio::exchange_member() {
  plan_members();
  const int64_t now_ns = sum(best());
  const int64_t goal_ns = now_ns - now_ns / kNegligiblePart;
  const size_t places = std::min(members_.size() + 1, static_cast<size_t>(options_.max_strategies));
  for (size_t place = 0; place < places; ++place) {
    const std::vector<int64_t> rest_ns = best_without(place);
    std::vector<size_t> ranked = ranking(rest_ns, place);
    if (ranked.size() > times(kBreadth)) ranked.resize(times(kBreadth));
    for (const size_t next : ranked) {
      judged_[next].plan_winnable(rest_ns, least_, goal_ns);
      update_least();
      if (total_with(next, rest_ns) >= goal_ns) continue;
      if (place == members_.size()) members_.push_back(next);
      members_[place] = next;
      return true;
    }
  }
  return false;
}

// Drops members that no batch needs, as long as the first holds the context.
void Portfolio::drop_idle_members() {
  for (size_t place = members_.size(); place-- > 0;) {
    const auto holder = std::ranges::find_if(members_, [&](const size_t& member) {
      return &member != &members_[place] && judged_[member].max_len_tokens() >= options_.context_length;
    });
    if (holder == members_.end() || sum(best_without(place)) > sum(best())) continue;
    if (place == 0) std::swap(members_.front(), *holder);
    members_.erase(place == 0 ? holder : members_.begin() + static_cast<std::ptrdiff_t>(place));
  }
}

// Adds the mix that would gain most if each batch lacked its best member,
// because a few members fit the sample's batches better than others.
bool Portfolio::add_spare() {
  std::vector<int64_t> next_ns;
  for (size_t b = 0; b < inputs_.batches.size(); ++b) {
    int64_t best_ns = cost::kLongestNs, second_ns = cost::kLongestNs;
    for (const size_t member : members_) {
      second_ns = std::min(second_ns, std::max(best_ns, judged_[member].time_ns(b, least_)));
      best_ns = std::min(best_ns, judged_[member].time_ns(b, least_));
    }
    next_ns.push_back(std::min(second_ns, 2 * best_ns));
  }
  return add_leader(next_ns);
}

Mix Portfolio::whole(Mix mix) const {
  if (copies_ == 1) return mix;
  for (int& pipelines : mix) pipelines *= copies_;
  fill(mix, inputs_.schemes, options_.world_size);
  return mix;
}

std::vector<Proposal> Portfolio::proposals() const {
  // Schemes on all ranks, where each rank owns less of the parameters.
  std::vector<SchemeCost> schemes;
  for (const SchemeCost& known : inputs_.schemes)
    schemes.emplace_back(known.scheme(), inputs_.cost, options_.world_size);
  std::vector<int> wins(members_.size(), 0);
  std::vector<LongestRange> longest(members_.size());
  for (size_t b = 0; b < inputs_.batches.size(); ++b) {
    const auto best = std::min_element(members_.begin(), members_.end(), [&](size_t x, size_t y) {
      return judged_[x].time_ns(b, least_) < judged_[y].time_ns(b, least_);
    });
    const auto winner = static_cast<size_t>(best - members_.begin());
    ++wins[winner];
    if (!inputs_.batches[b].sorted.empty()) longest[winner].add(inputs_.batches[b].sorted.front());
  }
  std::vector<Proposal> proposals;
  for (size_t m = 0; m < members_.size(); ++m) {
    const JudgedMix& judged = judged_[members_[m]];
    int64_t held = 0;
    int64_t total_ns = 0;
    for (size_t b = 0; b < inputs_.batches.size(); ++b) {
      if (!judged.holds(b)) continue;
      ++held;
      total_ns += judged.time_ns(b, least_);
    }
    proposals.push_back(
        {.strategy = strategy_of(whole(judged.mix()), schemes, options_.world_size),
         .max_len_tokens = max_len_tokens(judged.mix(), schemes),
         .frequency = inputs_.batches.empty()
                          ? 0
                          : static_cast<double>(wins[m]) / static_cast<double>(inputs_.batches.size()),
         .longest = longest[m],
         .mean_estimated_ns = held == 0 ? 0 : total_ns / held});
  }
  return proposals;
}

}  // namespace

base::Feasible<std::vector<Proposal>> propose(const PlannerOptions& options, const cost::CostModel& cost) {
  SLUICE_ASSERT(options.max_strategies >= 1 && options.thoroughness >= 1, "a proposal of no strategy");
  SearchedPart part = part_to_search(options, cost);
  if (auto none = no_scheme_fits(options.context_length, part.schemes, part.ranks)) return std::move(*none);
  Portfolio portfolio(options, cost, std::move(part));
  portfolio.choose();
  return portfolio.proposals();
}

}  // namespace sluice::plan
