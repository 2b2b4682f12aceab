#include "plan/pack.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "plan/few_units.h"
#include "plan/growth.h"
#include "plan/improve.h"
#include "plan/lanes.h"
#include "plan/pass_packer.h"
#include "plan/square_root.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/recurrence.h"

namespace sluice::plan {
namespace {

constexpr int64_t kFullParts[] = {20, 19, 18, 17};

// Indices of the items by descending key; equal ones in their own order.
template <typename Key>
std::vector<int> descending(std::span<const PackItem> items, Key key) {
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return key(items[static_cast<size_t>(a)]) > key(items[static_cast<size_t>(b)]);
  });
  return order;
}

int64_t work_of(std::span<const PackItem> items, const std::vector<int>& bin) {
  int64_t work_ns = 0;
  for (const int item : bin) work_ns += items[static_cast<size_t>(item)].work_ns;
  return work_ns;
}

strategy::Unit unit_of(std::span<const PackItem> items, std::vector<int> bin) {
  std::sort(bin.begin(), bin.end());
  strategy::Unit unit{.sequences = {}};
  for (const int index : bin) {
    const PackItem& item = items[static_cast<size_t>(index)];
    unit.sequences.push_back({item.sequence, item.tokens});
  }
  return unit;
}

// Tries micro-batches in several counts and orders and keeps the best.
class Packer {
 public:
  Packer(const strategy::Pipeline& pipeline, const SchemeCost& scheme, const cost::CostModel& cost,
         std::span<const PackItem> items, Seeds seeds)
      : scheme_(scheme), seeds_(seeds), times_(pipeline, cost), table_(pipeline.scheme.pp), items_(items) {}

  TimedUnits run(int64_t enough_ns) {
    if (items_.empty()) {
      consider({});
    } else if (scheme_.scheme().pp == 1) {
      consider(fewest());
    } else {
      collect_trials();
      run_trials(enough_ns);
    }
    return best();
  }

 private:
  // Even bins when the lowest count allows them, else as few as first-fit decreasing finds.
  Bins fewest() const {
    const int64_t tokens =
        std::accumulate(items_.begin(), items_.end(), int64_t{0},
                        [](int64_t sum, const PackItem& item) { return sum + item.tokens; });
    const int64_t capacity = scheme_.max_len_tokens();
    Bins fitting = first_fit_decreasing(items_, capacity);
    for (int64_t count = (tokens + capacity - 1) / capacity; count <= static_cast<int64_t>(fitting.size());
         ++count) {
      if (std::optional<Bins> even = balance(items_, static_cast<int>(count), capacity)) return *even;
    }
    return fitting;
  }

  // Micro-batches and an order of them.
  struct Trial {
    size_t bins = 0;         // index into bins_
    std::vector<int> order;  // rows of table_
    int64_t least_ns = 0;    // no schedule is shorter
  };

  void collect_trials() {
    const Bins least = fewest();
    const auto fewest_bins = static_cast<int>(least.size());
    collect_orders(least);
    int64_t work_ns = 0, tokens = 0;
    for (const PackItem& item : items_) {
      work_ns += item.work_ns;
      tokens += item.tokens;
    }
    if (scheme_.scheme().pp == 2 && seeds_.has(Seed::kGrowing)) collect_growing(work_ns, tokens, fewest_bins);
    const int64_t micro_batch_ns = scheme_.micro_batch_ns();
    for (const int count : micro_batch_counts(work_ns, micro_batch_ns, scheme_.scheme().pp, fewest_bins,
                                              static_cast<int>(items_.size()), seeds_)) {
      if (auto even = balance(items_, count, scheme_.max_len_tokens())) collect_orders(std::move(*even));
      if (count >= 3 && seeds_.has(Seed::kRamped)) collect_following(ramp(count));
    }
  }

  // With two stages: growing as fast as forwards allow, up to somewhat less than full ones, which items of
  // many sizes could not fill.
  void collect_growing(int64_t work_ns, int64_t tokens, int fewest_bins) {
    const auto most_bins = static_cast<int>(items_.size());
    for (const int64_t part : kFullParts) {
      const auto full_ns = static_cast<int64_t>(cost::Wide{work_ns} * scheme_.max_len_tokens() * part /
                                                (kFullParts[0] * std::max<int64_t>(1, tokens)));
      const int64_t most_ns = std::max(full_ns, items_[0].work_ns);
      const Growth growth(scheme_, work_ns, most_ns);
      const int best = growth.best_count(fewest_bins, most_bins);
      for (int count = std::max(fewest_bins, best - 1); count <= best; ++count) {
        collect_following(growth.sizes_ns(count));
      }
    }
  }

  void collect_following(const std::vector<int64_t>& targets) {
    std::optional<Bins> bins = follow(items_, targets, scheme_.max_len_tokens());
    if (!bins) return;
    collect(write_rows(*bins));
    bins_.push_back(std::move(*bins));
  }

  // Up over the first PP micro-batches, down over the last, from a third to one.
  std::vector<int64_t> ramp(int count) const {
    std::vector<int64_t> targets;
    const int64_t rise = scheme_.scheme().pp;
    for (int64_t i = 0; i < count; ++i) {
      targets.push_back(rise + 2 * std::min({i, int64_t{count} - 1 - i, rise}));
    }
    return targets;
  }

  // Rows of the bins at the end of the table.
  std::vector<int> write_rows(const Bins& bins) {
    std::vector<int> rows;
    for (const std::vector<int>& bin : bins) {
      rows.push_back(table_.units());
      table_.resize(rows.back() + 1);
      times_.write(work_of_bin(bin), table_, rows.back());
    }
    return rows;
  }

  cost::Work work_of_bin(const std::vector<int>& bin) const {
    cost::Work work;
    for (const int item : bin) {
      const int64_t tokens = items_[static_cast<size_t>(item)].tokens;
      work += scheme_.work_of(tokens);
    }
    return work;
  }

  // The next of bins_ in this order.
  void collect(std::vector<int> order) {
    const int64_t least_ns = bound_.at_least_ns(table_, order, scheme_.credit_tokens());
    trials_.push_back({.bins = bins_.size(), .order = std::move(order), .least_ns = least_ns});
  }

  void collect_orders(Bins bins) {
    std::vector<std::pair<int64_t, std::vector<int>>> by_work;
    for (std::vector<int>& bin : bins) {
      const int64_t work_ns = work_of(items_, bin);
      by_work.emplace_back(-work_ns, std::move(bin));
    }
    std::stable_sort(by_work.begin(), by_work.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < bins.size(); ++i) bins[i] = std::move(by_work[i].second);
    std::vector<int> order = write_rows(bins);
    collect(order);
    std::reverse(order.begin(), order.end());
    if (bins.size() > 1 && seeds_.has(Seed::kAscending)) collect(order);
    if (bins.size() > 2 && seeds_.has(Seed::kPeaked)) {
      // From the smallest, alternately in front and behind, towards the largest in the middle.
      std::vector<int> peaked(order.size());
      for (size_t i = 0; i < order.size(); ++i) {
        peaked[i % 2 == 0 ? i / 2 : order.size() - 1 - i / 2] = order[i];
      }
      collect(std::move(peaked));
    }
    bins_.push_back(std::move(bins));
  }

  // The most promising first, until the next cannot win.
  void run_trials(int64_t enough_ns) {
    std::stable_sort(trials_.begin(), trials_.end(),
                     [](const Trial& a, const Trial& b) { return a.least_ns < b.least_ns; });
    const Trial* best = nullptr;
    for (const Trial& trial : trials_) {
      if (best_ns_ && *best_ns_ <= std::max(trial.least_ns, enough_ns)) break;
      const int64_t limit_ns = best_ns_ ? *best_ns_ - 1 : schedule::Recurrence::kLate - 1;
      const int64_t makespan_ns =
          recurrence_.makespan_ns(table_, trial.order, 1, scheme_.credit_tokens(), limit_ns);
      if (makespan_ns == schedule::Recurrence::kLate) continue;
      best_ns_ = makespan_ns;
      best = &trial;
    }
    const int first_row = *std::min_element(best->order.begin(), best->order.end());
    for (const int row : best->order) {
      best_.push_back(std::move(bins_[best->bins][static_cast<size_t>(row - first_row)]));
    }
  }

  void consider(const Bins& bins) {
    table_.resize(static_cast<int>(bins.size()));
    order_.resize(bins.size());
    std::iota(order_.begin(), order_.end(), 0);
    for (size_t row = 0; row < bins.size(); ++row) {
      times_.write(work_of_bin(bins[row]), table_, static_cast<int>(row));
    }
    const int64_t limit_ns = best_ns_ ? *best_ns_ - 1 : schedule::Recurrence::kLate - 1;
    const int64_t makespan_ns = recurrence_.makespan_ns(table_, order_, 1, scheme_.credit_tokens(), limit_ns);
    if (makespan_ns == schedule::Recurrence::kLate) return;
    best_ns_ = makespan_ns;
    best_ = bins;
  }

  TimedUnits best() const {
    TimedUnits best{.units = {}, .makespan_ns = *best_ns_};
    for (const std::vector<int>& bin : best_) best.units.push_back(unit_of(items_, bin));
    return best;
  }

  const SchemeCost& scheme_;
  const Seeds seeds_;
  schedule::UnitTimes times_;
  schedule::UnitTable table_;  // of all trials; later of the bins last considered, in the order of injection
  schedule::FlowBound bound_;
  schedule::Recurrence recurrence_;
  std::vector<int> order_;  // 0, 1, …
  std::vector<Bins> bins_;
  std::vector<Trial> trials_;
  std::span<const PackItem> items_;
  std::optional<int64_t> best_ns_;
  Bins best_;
};

}  // namespace

Bins first_fit_decreasing(std::span<const PackItem> items, int64_t capacity_tokens) {
  Bins bins;
  std::vector<int64_t> room;
  for (const int index : descending(items, [](const PackItem& item) { return item.tokens; })) {
    const int64_t tokens = items[static_cast<size_t>(index)].tokens;
    SLUICE_ASSERT(tokens <= capacity_tokens, base::text(tokens, " tokens exceed ", capacity_tokens));
    const auto found = std::find_if(room.begin(), room.end(), [&](int64_t left) { return left >= tokens; });
    const auto bin = static_cast<size_t>(found - room.begin());
    if (found == room.end()) {
      bins.emplace_back();
      room.push_back(capacity_tokens);
    }
    bins[bin].push_back(index);
    room[bin] -= tokens;
  }
  return bins;
}

std::optional<Bins> balance(std::span<const PackItem> items, int bins, int64_t capacity_tokens) {
  SLUICE_ASSERT(bins >= 1 && bins <= static_cast<int>(items.size()), base::text(bins, " bins"));
  Bins result(static_cast<size_t>(bins));
  std::vector<int64_t> work_ns(result.size(), 0);
  std::vector<int64_t> room(result.size(), capacity_tokens);
  for (const int index : descending(items, [](const PackItem& item) { return item.work_ns; })) {
    const PackItem& item = items[static_cast<size_t>(index)];
    size_t best = result.size();
    for (size_t bin = 0; bin < result.size(); ++bin) {
      if (room[bin] < item.tokens) continue;
      // An empty bin beats one whose items take no measurable time, so that none stays empty.
      const auto load = [&](size_t of) { return std::pair(work_ns[of], result[of].size()); };
      if (best == result.size() || load(bin) < load(best)) best = bin;
    }
    if (best == result.size()) return std::nullopt;
    result[best].push_back(index);
    work_ns[best] += item.work_ns;
    room[best] -= item.tokens;
  }
  return result;
}

std::optional<Bins> follow(std::span<const PackItem> items, std::span<const int64_t> targets,
                           int64_t capacity_tokens) {
  const int64_t work_ns =
      std::accumulate(items.begin(), items.end(), int64_t{0},
                      [](int64_t sum, const PackItem& item) { return sum + item.work_ns; });
  const int64_t all = std::accumulate(targets.begin(), targets.end(), int64_t{0});
  Bins result(targets.size());
  std::vector<int64_t> lacking_ns, room(targets.size(), capacity_tokens);
  for (const int64_t target : targets) {
    lacking_ns.push_back(static_cast<int64_t>(cost::Wide{work_ns} * target / all));
  }
  for (const int index : descending(items, [](const PackItem& item) { return item.work_ns; })) {
    const PackItem& item = items[static_cast<size_t>(index)];
    size_t best = result.size();
    for (size_t bin = 0; bin < result.size(); ++bin) {
      if (room[bin] < item.tokens) continue;
      if (best == result.size() || lacking_ns[bin] > lacking_ns[best]) best = bin;
    }
    if (best == result.size()) return std::nullopt;
    result[best].push_back(index);
    lacking_ns[best] -= item.work_ns;
    room[best] -= item.tokens;
  }
  const bool empty = std::any_of(result.begin(), result.end(), [](const auto& bin) { return bin.empty(); });
  return empty ? std::nullopt : std::optional(std::move(result));
}

std::vector<int> micro_batch_counts(int64_t work_ns, int64_t micro_batch_ns, int pp, int fewest, int items,
                                    Seeds seeds) {
  const auto squared =
      static_cast<int64_t>(cost::Wide{work_ns} * 6 * (pp - 1) / (10 * std::max<int64_t>(micro_batch_ns, 1)));
  const int64_t middle = square_root(squared);
  std::vector<int> counts;
  const auto add = [&](int64_t count) {
    counts.push_back(static_cast<int>(std::clamp<int64_t>(count, fewest, items)));
  };
  add(middle);
  if (seeds.has(Seed::kNearCounts)) add(middle - 1), add(middle + 1);
  if (seeds.has(Seed::kFarCounts)) add(middle / 2), add(middle * 3 / 2);
  if (seeds.has(Seed::kStageCounts)) add(pp), add(int64_t{2} * pp);
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

namespace {

TimedUnits pack_one_lane(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                         const cost::CostModel& cost, std::span<const int64_t> lengths,
                         std::span<const int> members, const PackOptions& options) {
  std::vector<PackItem> items;
  for (const int sequence : members) {
    const int64_t tokens = lengths[static_cast<size_t>(sequence)];
    items.push_back({.sequence = sequence, .tokens = tokens, .work_ns = scheme.sequence_ns(tokens)});
  }
  return Packer(pipeline, scheme, cost, items, options.seeds).run(options.enough_ns);
}

// Cells that the improver may time, by rule.
int64_t most_cells(PackRule rule) {
  switch (rule) {
    case PackRule::kOurs: return 0;
    case PackRule::kThorough: return 2'000;
    case PackRule::kFew: return 40'000;
  }
  return 0;
}

strategy::PipelinePlan plan_of(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                               const cost::CostModel& cost, std::vector<strategy::Unit> units) {
  strategy::PipelinePlan plan{.pipeline = pipeline, .max_len_tokens = scheme.lane_max_len_tokens()};
  std::optional<schedule::UnitTimes> times;
  if (pipeline.scheme.cp > 1) times.emplace(pipeline, cost);
  for (size_t u = 0; u < units.size(); ++u) {
    strategy::Unit& unit = units[u];
    std::ranges::sort(unit.sequences, {}, &strategy::UnitSequence::sequence);
    for (auto& own : unit.own) std::ranges::sort(own, {}, &strategy::UnitSequence::sequence);
    plan.max_len_tokens = std::max(plan.max_len_tokens, unit.tokens());
    if (unit.lanes == 1) continue;
    const cost::ExchangeChoice choice = times->cheapest_exchange(unit, scheme.lane_max_len_tokens());
    unit.exchange = choice.exchange;
    unit.nested_lanes = choice.nested_lanes;
    unit.ring = static_cast<int>(u);
  }
  plan.units = strategy::in_injection_order(std::move(units), pipeline.scheme.cp);
  return plan;
}

// Whether lanes of one stage have so few micro-batches that each should end when the others do.
bool fits_few_passes(const SchemeCost& scheme, std::span<const int64_t> lengths,
                     std::span<const int> members) {
  constexpr int64_t kFew = 2;
  int64_t tokens = 0;
  for (const int member : members) tokens += lengths[static_cast<size_t>(member)];
  return scheme.scheme().pp == 1 && tokens <= kFew * scheme.lane_max_len_tokens() * scheme.scheme().cp;
}

// Where lanes have many micro-batches, or several stages, in layers of rings; else, and where lanes share
// parameters, in even passes, which are hardly ever beaten there. What is to be packed well is packed both
// ways: layers where a step is nearly done, passes where sequences are few. So is what ends far from enough,
// by which a strategy would be given up.
PackedPipeline pack_on_lanes(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                             const cost::CostModel& cost, std::span<const int64_t> lengths,
                             std::span<const int> members, PackOptions options) {
  const bool passes_first = pipeline.scheme.share > 1 || fits_few_passes(scheme, lengths, members);
  const auto first = passes_first ? pack_passes : pack_lanes;
  const auto second = passes_first ? pack_lanes : pack_passes;
  std::optional<PackedPipeline> packed = first(pipeline, scheme, cost, lengths, members, options);
  constexpr int64_t kFar = 16;  // by one part in so many
  const bool far = packed->makespan_ns - packed->makespan_ns / kFar > options.enough_ns;
  const bool both =
      pipeline.scheme.share == 1 &&
      (options.rule == PackRule::kFew || (passes_first && (far || options.rule == PackRule::kThorough)));
  if (!both || packed->makespan_ns <= options.enough_ns) return std::move(*packed);
  options.below_ns = packed->makespan_ns;
  auto sooner = second(pipeline, scheme, cost, lengths, members, options);
  return std::move(sooner && sooner->makespan_ns < packed->makespan_ns ? *sooner : *packed);
}

}  // namespace

PackedPipeline pack(const strategy::Pipeline& pipeline, const SchemeCost& scheme, const cost::CostModel& cost,
                    std::span<const int64_t> lengths, std::span<const int> members,
                    const PackOptions& options) {
  const auto& [rule, enough_ns, seeds, below_ns] = options;
  const bool laned = pipeline.scheme.cp > 1;
  TimedUnits packed;
  if (laned) {
    PackedPipeline on_lanes = pack_on_lanes(pipeline, scheme, cost, lengths, members, options);
    if (pipeline.scheme.share > 1) return on_lanes;
    packed = {.units = std::move(on_lanes.plan.units), .makespan_ns = on_lanes.makespan_ns};
  } else {
    packed = pack_one_lane(pipeline, scheme, cost, lengths, members, options);
  }
  const bool simple = !laned && pipeline.scheme.pp == 1;  // few micro-batches, in any order, are the best
  // Of many sequences on lanes single moves bring too little for what they cost to time.
  const int64_t cells = laned && rule != PackRule::kFew ? 0 : most_cells(rule);
  if (!simple && cells > 0 && packed.makespan_ns > enough_ns) {
    UnitImprover improver(pipeline, scheme, cost, seeds);
    improver.improve(packed, enough_ns, cells);
    if (laned && seeds.has(Seed::kFewUnits))
      start_from_few_units(scheme, lengths, members, {enough_ns, cells}, improver, packed);
  }
  return {.plan = plan_of(pipeline, scheme, cost, std::move(packed.units)),
          .makespan_ns = packed.makespan_ns};
}

}  // namespace sluice::plan
