#include "plan/bound.h"

#include <algorithm>
#include <set>

#include "base/never.h"
#include "plan/longest.h"
#include "plan/precision.h"

namespace sluice::plan {
namespace {

using cost::Wide;
using cost::Work;

constexpr int kRounds = 40;
constexpr int kTrialRounds = 12;
constexpr int64_t kWhole = SchemeFloors::kWholePart;  // unit of prices and of shares of constants

// The groups that hold more than a threshold, and the sequences, longest first, that only they hold.
struct Class {
  std::vector<size_t> groups;
  size_t sequences = 0;
};

std::vector<Class> classes_of(std::span<const int64_t> lengths, std::span<const SchemeGroup> groups) {
  std::set<int64_t> capacities;
  for (const SchemeGroup& group : groups) capacities.insert(group.scheme->max_len_tokens());
  std::vector<Class> classes;
  int64_t below = 0;  // capacity of the groups outside the class
  for (const int64_t capacity : capacities) {
    Class next;
    for (size_t k = 0; k < groups.size(); ++k) {
      if (groups[k].scheme->max_len_tokens() >= capacity) next.groups.push_back(k);
    }
    while (next.sequences < lengths.size() && lengths[next.sequences] > below) ++next.sequences;
    classes.push_back(std::move(next));
    below = capacity;
  }
  return classes;
}

// If a class has more sequences than pipelines that hold them, two sequences share one pipeline.
int64_t pigeonhole_ns(const Class& of, std::span<const int64_t> lengths, std::span<const SchemeGroup> groups,
                      const FloorTable& floors) {
  size_t pipelines = 0;
  for (const size_t k : of.groups) pipelines += static_cast<size_t>(groups[k].pipelines);
  if (of.sequences <= pipelines) return 0;
  int64_t least_ns = base::kNever;
  for (const size_t k : of.groups) {
    const Work two = groups[k].scheme->work_of(lengths.subspan(pipelines - 1, 2));
    const int64_t busy_ns = groups[k].scheme->floors().floor_ns(floors.stage(k), two, 2);
    least_ns = std::min(least_ns, busy_ns + floors.fill_ns(k));
  }
  return least_ns;
}

// By group: the least time that rings add to the floors of the longest
// sequences; later ones get nothing. Empty if rings add nothing.
using RingFloors = std::vector<std::vector<int64_t>>;

class PriceSearch {
 public:
  // `least_ns` is a bound already proved.
  PriceSearch(const Class& of, std::span<const SchemeGroup> groups, const FloorTable& floors,
              int64_t least_ns)
      : class_(of),
        groups_(groups),
        floors_(floors),
        least_ns_(least_ns),
        prices_(groups.size(), 0),
        parts_(groups.size(), kWhole),
        fills_(groups.size()),
        first_(groups.size(), 0) {
    start();
  }
  // Restricts each group to the sequences from
  // first[group] on, and adds its rings' floors.
  void restrict_to(std::vector<size_t> first, const RingFloors& rings) {
    first_ = std::move(first);
    rings_ = &rings;
  }

  // Runs rounds until the bound exceeds `enough_ns`.
  Bound run(int rounds, int64_t enough_ns = base::kNever) {
    Bound best;
    for (int round = 0; round < (class_.groups.size() == 1 ? kTrialRounds : rounds); ++round) {
      for (const size_t k : class_.groups) fills_[k] = fill(k);
      const int64_t bound_ns = evaluate();
      least_ns_ = std::max(least_ns_, bound_ns);
      if (bound_ns > best.lower_ns || best.prices.empty()) best = {.lower_ns = bound_ns, .prices = prices_};
      if (best.lower_ns > enough_ns) break;
      adjust(bound_ns, round);
    }
    return best;
  }

 private:
  // Prices start inverse to the floors of the middle sequence.
  void start() {
    const size_t middle = class_.sequences / 2;
    int64_t least = base::kNever;
    const auto floor_ns = [&](size_t k) {
      for (size_t i = middle; i < class_.sequences; ++i) {
        if (floors_.fits(i, k) && floors_.floor_ns(i, k) > 0) return floors_.floor_ns(i, k);
      }
      return int64_t{1};
    };
    for (const size_t k : class_.groups) least = std::min(least, floor_ns(k));
    for (const size_t k : class_.groups) {
      prices_[k] = std::max<int64_t>(1, static_cast<int64_t>(Wide{kWhole} * least / floor_ns(k)));
    }
  }

  int64_t evaluate() {
    loads_ns_.assign(groups_.size(), 0);
    shares_ns_.assign(groups_.size(), 0);
    Wide priced = 0;
    for (size_t i = 0; i < class_.sequences; ++i) {
      Wide least = -1;
      size_t cheapest = 0;
      for (const size_t k : class_.groups) {
        if (!floors_.fits(i, k) || i < first_[k]) continue;
        const Wide cost = Wide{prices_[k]} * floor_ns(i, k);
        if (least >= 0 && cost >= least) continue;
        cheapest = k;
        least = cost;
      }
      priced += least;
      loads_ns_[cheapest] += floor_ns(i, cheapest);
      shares_ns_[cheapest] += floors_.share_ns(i, cheapest);
    }
    Wide weight = 0;
    for (const size_t k : class_.groups) {
      const Wide share = Wide{prices_[k]} * groups_[k].pipelines;
      priced += share * fills_[k].ns;
      weight += share;
    }
    return static_cast<int64_t>((priced + weight - 1) / weight);
  }

  int64_t floor_ns(size_t sequence, size_t k) const {
    // Rounded up: the part that stays in the floor must not exceed the proved one.
    const auto left_out_ns = static_cast<int64_t>(
        (Wide{floors_.share_ns(sequence, k)} * (kWhole - parts_[k]) + kWhole - 1) / kWhole);
    const int64_t ring_ns = rings_ != nullptr && sequence < (*rings_)[k].size() ? (*rings_)[k][sequence] : 0;
    return floors_.floor_ns(sequence, k) - left_out_ns + ring_ns;
  }
  // The time that a pipeline of the group cannot give its stage by least_ns_, and so by any later time.
  struct Fill {
    int64_t ns = 0;
    int64_t micro_batches = 1;  // the number that loses least
  };
  Fill fill(size_t k) const {
    const auto constant_ns =
        static_cast<int64_t>(Wide{floors_.constant_ns(k)} * (kWhole - parts_[k]) / kWhole);
    // Exposed rings may fill the time that a bubble leaves.
    if (rings_ != nullptr && !(*rings_)[k].empty())
      return {.ns = std::min(floors_.fill_ns(k) + constant_ns, least_ns_)};
    const Bubble::Most most = floors_.bubble(k).most(least_ns_, constant_ns);
    const int64_t lost_ns = std::max(least_ns_ - most.busy_ns, floors_.fill_ns(k) + constant_ns);
    return {.ns = std::min(lost_ns, least_ns_), .micro_batches = most.micro_batches};
  }

  // Steps shrink as 1/round, whose sum has no limit: far prices are reached, near ones are not overshot.
  static Wide damped(Wide step, int round) { return 2 * step / (3 + round); }

  // Raises the price of groups with more than their share. Tokens pay for
  // constants where they fill more than the micro-batches that lose least.
  void adjust(int64_t bound_ns, int round) {
    for (const size_t k : class_.groups) {
      const int64_t load_ns = loads_ns_[k] / groups_[k].pipelines + fills_[k].ns;
      const int64_t excess = std::clamp(load_ns - bound_ns, -bound_ns / 2, bound_ns);
      const Wide step = damped(Wide{prices_[k]} * excess, round) / std::max<int64_t>(bound_ns, 1);
      prices_[k] = std::max<int64_t>(prices_[k] + static_cast<int64_t>(step), 1);
      const int64_t constant_ns = floors_.constant_ns(k) * fills_[k].micro_batches;
      if (constant_ns == 0) continue;
      const int64_t fuller_ns =
          std::clamp(shares_ns_[k] / groups_[k].pipelines - constant_ns, -constant_ns, constant_ns);
      const Wide more = damped(Wide{kWhole} * fuller_ns, round) / constant_ns;
      parts_[k] = std::clamp<int64_t>(parts_[k] + static_cast<int64_t>(more), 0, kWhole);
    }
  }

  const Class& class_;
  std::span<const SchemeGroup> groups_;
  const FloorTable& floors_;
  int64_t least_ns_;
  std::vector<int64_t> prices_;  // λ
  std::vector<int64_t> parts_;   // θ
  std::vector<Fill> fills_;
  std::vector<int64_t> loads_ns_, shares_ns_;
  std::vector<size_t> first_;
  const RingFloors* rings_ = nullptr;
};

// By group, the first sequence whose path ends by `limit_ns`; nothing if a sequence
// has no such group. Paths grow with length, so the longest sequence usually decides.
std::optional<std::vector<size_t>> first_within(int64_t limit_ns, std::span<const int64_t> lengths,
                                                std::span<const SchemeGroup> groups,
                                                const FloorTable& floors) {
  std::vector<size_t> first;
  for (size_t k = 0; k < groups.size(); ++k) {
    const SchemeGroup& group = groups[k];
    if (floors.longest_path_ns(k) <= limit_ns) {
      first.push_back(0);
      continue;
    }
    const auto at = std::partition_point(lengths.begin(), lengths.end(), [&](int64_t length) {
      return length > group.scheme->max_len_tokens() || group.scheme->floors().path_ns(length) > limit_ns;
    });
    first.push_back(static_cast<size_t>(at - lengths.begin()));
  }
  if (*std::min_element(first.begin(), first.end()) > 0) return std::nullopt;
  return first;
}

// Assumes that all ends by `limit_ns` and that each group takes only the sequences from `first` on.
RingFloors ring_floors(int64_t limit_ns, std::span<const int64_t> lengths,
                       std::span<const SchemeGroup> groups, const FloorTable& floors,
                       std::span<const size_t> first) {
  RingFloors rings(groups.size());
  for (size_t k = 0; k < groups.size(); ++k) {
    const SchemeCost& scheme = *groups[k].scheme;
    if (scheme.scheme().cp == 1 || first[k] == lengths.size()) continue;
    const SchemeFloors::RingLimits limits{floors.stage(k), lengths[first[k]], limit_ns};
    const int hiding = scheme.floors().hiding_lanes(limits);
    if (hiding == scheme.scheme().cp) continue;
    rings[k].resize(first[k], 0);
    for (size_t i = first[k]; i < lengths.size(); ++i) {
      if (hiding >= scheme.fewest_lanes(lengths[i]) &&
          scheme.floors().path_ns(lengths[i], hiding) <= limit_ns)
        break;
      rings[k].push_back(scheme.floors().ring_floor_ns(lengths[i], limits));
    }
    if (std::ranges::all_of(rings[k], [](int64_t ns) { return ns == 0; })) rings[k].clear();
  }
  return rings;
}

// A proof that no plan ends by `limit_ns`, if found. `least_ns` is a bound
// already proved. `prices` returns those of all sequences on all groups.
std::optional<Proof> exceeds(int64_t limit_ns, std::span<const int64_t> lengths,
                             std::span<const SchemeGroup> groups, const FloorTable& floors, int64_t least_ns,
                             std::vector<int64_t>& prices) {
  std::optional<std::vector<size_t>> first = first_within(limit_ns, lengths, groups, floors);
  if (!first) return Proof::kPath;
  const RingFloors rings = ring_floors(limit_ns, lengths, groups, floors, *first);
  const bool ringed = std::ranges::any_of(rings, [](const auto& of) { return !of.empty(); });
  // All sequences on all groups; then the longest, which some groups exclude, on the others alone.
  std::vector<size_t> thresholds = *first;
  std::sort(thresholds.begin(), thresholds.end());
  for (size_t of = 0; of < thresholds.size(); ++of) {
    const size_t sequences = of == 0 ? lengths.size() : thresholds[of];
    if (sequences == 0 || (of > 0 && thresholds[of] == thresholds[of - 1])) continue;
    Class restricted{.groups = {}, .sequences = sequences};
    for (size_t k = 0; k < groups.size(); ++k) {
      if ((*first)[k] < sequences) restricted.groups.push_back(k);
    }
    PriceSearch search(restricted, groups, floors, least_ns);
    search.restrict_to(*first, rings);
    const Bound bound = search.run(kTrialRounds, limit_ns);
    if (of == 0) prices = bound.prices;
    if (bound.lower_ns > limit_ns) return ringed ? Proof::kRings : Proof::kPrices;
    if (pigeonhole_ns(restricted, lengths, groups, floors) > limit_ns) return Proof::kPigeonhole;
  }
  return std::nullopt;
}

// No plan ends by `low_ns`. Bisects larger trial values that
// no plan meets, up to `enough_ns` − 1, which is tried first.
template <typename Excluded>
int64_t raised(int64_t low_ns, int64_t enough_ns, const Excluded& excluded) {
  int64_t low = low_ns;
  int64_t high = 2 * low_ns;
  if (enough_ns - 1 <= low) return low;
  if (enough_ns - 1 < high) {
    if (excluded(enough_ns - 1)) return enough_ns - 1;
    high = enough_ns - 1;
  }
  const int64_t step = 1 + low / kNegligiblePart;
  for (int64_t trial = low + step; high - low > step; trial = low + (high - low) / 2)
    (excluded(trial) ? low : high) = trial;
  return low;
}

// Takes the prices of the last trial value that was not excluded.
void raise_by_trials(std::span<const int64_t> lengths, std::span<const SchemeGroup> groups,
                     const FloorTable& floors, int64_t enough_ns, Bound& best) {
  const int64_t least_ns = best.lower_ns;
  best.lower_ns = 1 + raised(least_ns - 1, enough_ns, [&](int64_t limit_ns) {
                    std::vector<int64_t> prices;
                    const std::optional<Proof> proof =
                        exceeds(limit_ns, lengths, groups, floors, least_ns, prices);
                    if (proof) {
                      best.proof = *proof;
                    } else {
                      best.prices = std::move(prices);
                    }
                    return proof.has_value();
                  });
}

// Tries the longest sequences that some groups exclude, and as many as the search can handle.
bool longest_exceed(int64_t limit_ns, std::span<const int64_t> lengths, std::span<const SchemeGroup> groups,
                    const FloorTable& floors, LongestSequences& longest) {
  const std::optional<std::vector<size_t>> first = first_within(limit_ns, lengths, groups, floors);
  if (!first) return true;
  std::vector<size_t> counts = *first;
  counts.push_back(std::min(LongestSequences::kMost, lengths.size()));
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  const size_t most = std::min(LongestSequences::kMost, lengths.size());
  return std::any_of(counts.begin(), counts.end(), [&](size_t count) {
    return count > 0 && count <= most && longest.exceed(limit_ns, count, *first);
  });
}

void raise_by_longest(std::span<const int64_t> lengths, std::span<const SchemeGroup> groups,
                      const FloorTable& floors, int64_t enough_ns, Bound& best) {
  LongestSequences longest(lengths, groups, floors);
  const int64_t low_ns = raised(best.lower_ns - 1, enough_ns, [&](int64_t limit_ns) {
    return longest_exceed(limit_ns, lengths, groups, floors, longest);
  });
  if (low_ns < best.lower_ns) return;
  best.lower_ns = low_ns + 1;
  best.proof = Proof::kLongest;
}

void raise(Bound& best, int64_t lower_ns, Proof proof) {
  if (lower_ns <= best.lower_ns) return;
  best.lower_ns = lower_ns;
  best.proof = proof;
}

}  // namespace

std::optional<Bound> first_bound(std::span<const int64_t> lengths, std::span<const SchemeGroup> groups,
                                 const FloorTable& floors) {
  if (lengths.empty()) return Bound{.lower_ns = 0, .prices = std::vector<int64_t>(groups.size(), 1)};
  int64_t path_ns = base::kNever;
  for (size_t k = 0; k < groups.size(); ++k) path_ns = std::min(path_ns, floors.longest_path_ns(k));
  if (path_ns == base::kNever) return std::nullopt;

  const std::vector<Class> classes = classes_of(lengths, groups);
  Bound best = PriceSearch(classes.front(), groups, floors, path_ns).run(kRounds);
  raise(best, path_ns, Proof::kPath);
  for (const Class& of : classes) {
    if (of.sequences == 0) continue;
    raise(best, pigeonhole_ns(of, lengths, groups, floors), Proof::kPigeonhole);
    if (of.groups.size() < groups.size()) {
      raise(best, PriceSearch(of, groups, floors, path_ns).run(kRounds).lower_ns, Proof::kPrices);
    }
  }
  best.start_ns = best.lower_ns;
  return best;
}

void raise_bound(std::span<const int64_t> lengths, std::span<const SchemeGroup> groups,
                 const FloorTable& floors, int64_t enough_ns, Bound& bound) {
  if (lengths.empty()) return;
  const auto single = [](const SchemeGroup& group) { return group.scheme->scheme().cp == 1; };
  if (groups.size() > 1 || !single(groups.front()))
    raise_by_trials(lengths, groups, floors, enough_ns, bound);
  bound.start_ns = bound.lower_ns;
  if (std::ranges::any_of(groups, single)) raise_by_longest(lengths, groups, floors, enough_ns, bound);
}

}  // namespace sluice::plan
