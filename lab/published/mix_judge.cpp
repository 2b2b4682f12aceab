#include "published/mix_judge.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <utility>

namespace sluice::published {
namespace {

using Wide = __int128;

constexpr int64_t kAlike = 64;  // lengths of a class differ by less than this fraction
constexpr int64_t kUnitPrice = int64_t{1} << 24;
constexpr int kRounds = 12;
constexpr int64_t kNever = MixJudge::kNever;

int64_t share_of(int64_t ns, int64_t bubbles, int64_t end_ns) {
  const bool fits = ns != LengthTimes::kDoesNotFit && ns * (bubbles + 1) <= end_ns;
  if (!fits) return LengthTimes::kDoesNotFit;
  return static_cast<int64_t>(Wide{ns} * EndBound::kFull / std::max<int64_t>(1, end_ns - bubbles * ns));
}

// The pipelines of one scheme while a trial fills them: Algorithm 1's loads by Eq. 2, in classes by longest
// sequence. A pipeline whose longest sequence is at least as long as a new one takes T more with it. Any
// other also takes (PP − 1) times the difference in T. The minima of both kinds are those of a run of
// classes, found by a tree of minima. The first empty pipeline comes after all pipelines with sequences.
class SegmentTree {
 public:
  SegmentTree(const LengthTimes& times, size_t scheme, int64_t bubbles, int pipelines)
      : times_(&times),
        scheme_(scheme),
        bubbles_(bubbles),
        pipelines_(static_cast<uint32_t>(pipelines)),
        leaves_(std::bit_ceil(bubbles == 0 ? size_t{1} : times.size())),
        classes_(leaves_),
        as_long_(2 * leaves_),
        shorter_(2 * leaves_) {}

  // Empties all pipelines.
  void clear() {
    used_ = 0;
    for (std::vector<Load>& loads : classes_) loads.clear();
    std::ranges::fill(as_long_, Found{});
    std::ranges::fill(shorter_, Found{});
  }

  size_t scheme() const { return scheme_; }
  int64_t time_ns(size_t length) const { return times_->times_ns(length)[scheme_]; }

  // A pipeline: the first of those that end first; in a class if it has sequences.
  struct Found {
    int64_t ns = kNever;
    uint32_t index = 0;
    uint32_t in_class = kEmpty;
    bool operator==(const Found& other) const = default;
    bool operator<(const Found& other) const {
      return std::pair(ns, index) < std::pair(other.ns, other.index);
    }
  };
  // The pipeline on which a sequence of this length (an index into the times) ends first. If no pipeline ends
  // before `below_ns`, the result is any other pipeline, or none.
  Found soonest(size_t length, int64_t below_ns) const {
    const int64_t ns = time_ns(length);
    const int64_t all_ns = (bubbles_ + 1) * ns;  // with bubbles of the same length
    const size_t of = class_of(length);
    Found best;
    if (used_ < pipelines_) best = {.ns = all_ns, .index = used_};
    const auto may_end = [&](const Found& first, int64_t more_ns) {
      return first.ns + more_ns < below_ns && first.ns + more_ns <= best.ns;
    };
    if (may_end(as_long_[1], ns)) best = std::min(best, least(as_long_, of, leaves_, ns));
    if (may_end(shorter_[1], all_ns)) best = std::min(best, least(shorter_, 0, of, all_ns));
    return best;
  }

  // `found`: the result of soonest() for the same length.
  void add(const Found& found, size_t length) {
    size_t longest = class_of(length);
    if (found.in_class == kEmpty) {
      ++used_;
    } else {
      pop(found.in_class);
      longest = std::max<size_t>(longest, found.in_class);
    }
    std::vector<Load>& loads = classes_[longest];
    loads.emplace_back(found.ns, found.index);
    std::ranges::push_heap(loads, std::greater<>());
    update(longest);
  }

 private:
  static constexpr uint32_t kEmpty = std::numeric_limits<uint32_t>::max();
  using Load = std::pair<int64_t, uint32_t>;  // by Eq. 2, and the pipeline

  size_t class_of(size_t length) const { return leaves_ == 1 ? 0 : length; }

  // The minimum of classes [begin, end), plus `more_ns`.
  static Found least(const std::vector<Found>& tree, size_t begin, size_t end, int64_t more_ns) {
    Found best;
    const size_t leaves = tree.size() / 2;
    for (begin += leaves, end += leaves; begin < end; begin /= 2, end /= 2) {
      if (begin % 2 == 1) best = std::min(best, tree[begin++]);
      if (end % 2 == 1) best = std::min(best, tree[--end]);
    }
    if (best.ns < kNever) best.ns += more_ns;
    return best;
  }

  // The pipeline found by soonest() is the first of its class.
  void pop(size_t in_class) {
    std::ranges::pop_heap(classes_[in_class], std::greater<>());
    classes_[in_class].pop_back();
    update(in_class);
  }

  void update(size_t of) {
    Found as_long, shorter;
    if (!classes_[of].empty()) {
      const auto& [ns, index] = classes_[of].front();
      as_long = shorter = {.ns = ns, .index = index, .in_class = static_cast<uint32_t>(of)};
      if (bubbles_ > 0) shorter.ns -= bubbles_ * time_ns(of);
    }
    set(as_long_, of, as_long);
    set(shorter_, of, shorter);
  }

  static void set(std::vector<Found>& tree, size_t leaf, Found found) {
    size_t at = tree.size() / 2 + leaf;
    tree[at] = found;
    while (at /= 2) {
      const Found& less = std::min(tree[2 * at], tree[2 * at + 1]);
      if (less == tree[at]) break;
      tree[at] = less;
    }
  }

  const LengthTimes* times_;
  size_t scheme_;
  int64_t bubbles_;
  uint32_t pipelines_;
  uint32_t used_ = 0;  // number of pipelines with sequences
  size_t leaves_;
  std::vector<std::vector<Load>> classes_;  // by longest sequence; heaps
  std::vector<Found> as_long_;              // minima of loads
  std::vector<Found> shorter_;              // minima of loads without the bubbles of the longest
};

// Empty loads, in order of descending MaxLen.
std::vector<SegmentTree> empty_loads(const plan::Mix& mix, const LengthTimes& times) {
  const std::span<const plan::SchemeCost> schemes = times.schemes();
  std::vector<SegmentTree> loads;
  for (size_t k = 0; k < mix.size(); ++k) {
    if (mix[k] > 0) loads.emplace_back(times, k, schemes[k].scheme().pp - 1, mix[k]);
  }
  std::ranges::stable_sort(loads, std::ranges::greater(),
                           [&](const SegmentTree& of) { return schemes[of.scheme()].max_len_tokens(); });
  return loads;
}

// One trial's estimate; kNever if a sequence fits nowhere, or once it is not below `limit_ns`.
int64_t trial_ns(std::vector<SegmentTree>& loads, std::span<const int> order, int64_t limit_ns) {
  for (SegmentTree& of : loads) of.clear();
  int64_t most_ns = 0;
  for (const int index : order) {
    const auto length = static_cast<size_t>(index);
    SegmentTree::Found best;
    SegmentTree* to = nullptr;
    for (SegmentTree& of : loads) {
      if (of.time_ns(length) == LengthTimes::kDoesNotFit) break;  // nor does any after it
      const SegmentTree::Found found = of.soonest(length, best.ns);
      if (found.ns >= best.ns) continue;
      best = found;
      to = &of;
    }
    most_ns = std::max(most_ns, best.ns);
    if (most_ns >= limit_ns || to == nullptr) return kNever;
    to->add(best, length);
  }
  return most_ns < limit_ns ? most_ns : kNever;
}

// The least of all trials; kNever if it is not below `limit_ns`.
int64_t trials_ns(const LengthTimes& times, const plan::Mix& mix, std::span<const std::vector<int>> orders,
                  int64_t limit_ns) {
  std::vector<SegmentTree> loads = empty_loads(mix, times);
  int64_t least_ns = kNever;
  for (const std::vector<int>& order : orders)
    least_ns = std::min(least_ns, trial_ns(loads, order, std::min(limit_ns, least_ns)));
  return least_ns;
}

}  // namespace

LengthTimes::LengthTimes(const std::vector<int64_t>& lengths, std::span<const plan::SchemeCost> schemes)
    : schemes_(schemes) {
  std::vector<int64_t> sorted = lengths;
  std::ranges::sort(sorted);
  for (const int64_t length : sorted) {
    if (lengths_.empty() || lengths_.back() != length) {
      lengths_.push_back(length);
      sequences_.push_back(0);
      for (const plan::SchemeCost& scheme : schemes)
        times_ns_.push_back(length <= scheme.max_len_tokens() ? printed_ns(scheme, length) : kDoesNotFit);
    }
    ++sequences_.back();
  }
}

size_t LengthTimes::index_of(int64_t length) const {
  return static_cast<size_t>(std::ranges::lower_bound(lengths_, length) - lengths_.begin());
}

EndBound::EndBound(const LengthTimes& times) : times_(times) {
  int64_t most = -1;  // longest length of the class
  for (size_t i = 0; i < times.size(); ++i) {
    if (times.length(i) > most) {
      most = times.length(i) + times.length(i) / kAlike;
      // A scheme that holds the shortest of the class counts as holding all of it.
      classes_.push_back({.shortest = i});
    }
    classes_.back().sequences += times.sequences(i);
  }
}

void EndBound::set_end(int64_t end_ns) {
  shares_.clear();
  for (const LengthClass& of : classes_) {
    for (size_t k = 0; k < times_.schemes().size(); ++k) {
      const int64_t ns = times_.times_ns(of.shortest)[k];
      shares_.push_back(share_of(ns, times_.schemes()[k].scheme().pp - 1, end_ns));
    }
  }
}

int64_t EndBound::fullness(const plan::Mix& mix) const {
  struct Group {
    size_t scheme;
    int64_t pipelines;
    int64_t price = kUnitPrice;
    Wide load = 0;
  };
  std::vector<Group> groups;
  for (size_t k = 0; k < mix.size(); ++k) {
    if (mix[k] > 0) groups.push_back({.scheme = k, .pipelines = mix[k]});
  }
  int64_t most = 0;
  for (int round = 0; round < kRounds && most <= kFull; ++round) {
    Wide priced = 0, room = 0;
    for (Group& group : groups) {
      group.load = 0;
      room += Wide{group.price} * group.pipelines;
    }
    for (size_t c = 0; c < classes_.size(); ++c) {
      const int64_t* shares = &shares_[c * mix.size()];
      int64_t least = LengthTimes::kDoesNotFit;
      Group* cheapest = nullptr;
      for (Group& group : groups) {
        const int64_t share = shares[group.scheme];
        if (share == LengthTimes::kDoesNotFit || group.price * share >= least) continue;
        least = group.price * share;
        cheapest = &group;
      }
      if (cheapest == nullptr) return LengthTimes::kDoesNotFit;
      priced += Wide{least} * classes_[c].sequences;
      cheapest->load += Wide{shares[cheapest->scheme]} * classes_[c].sequences;
    }
    const Wide even = std::max<Wide>(1, priced / room);
    most = std::max(most, static_cast<int64_t>(even));
    for (Group& group : groups) {
      // A scheme's price rises if it is fuller than the others, by at most a quarter.
      const Wide off = std::clamp<Wide>(group.load / group.pipelines - even, -even, even);
      group.price = std::max<int64_t>(
          1, group.price + static_cast<int64_t>(off * group.price / even / (4 + 2 * round)));
    }
  }
  return most;
}

MixJudge::MixJudge(const std::vector<int64_t>& lengths, std::span<const plan::SchemeCost> schemes,
                   const DispatchOptions& options)
    : times_(lengths, schemes), orders_(trial_orders(lengths.size(), options)) {
  for (std::vector<int>& order : orders_) {
    for (int& sequence : order)
      sequence = static_cast<int>(times_.index_of(lengths[static_cast<size_t>(sequence)]));
  }
}

int64_t MixJudge::estimated_ns(const plan::Mix& mix) const { return trials_ns(times_, mix, orders_, kNever); }

// Tries mixes from the least full by the end of the guess, as long as one can end as soon as the best.
size_t MixJudge::best_of(std::span<const plan::Mix> mixes, size_t guess) const {
  std::pair<int64_t, size_t> best{estimated_ns(mixes[guess]), guess};
  for (size_t m = 0; m < mixes.size() && best.first == kNever; ++m) best = {estimated_ns(mixes[m]), m};
  if (best.first == kNever) return 0;
  EndBound bound(times_);
  bound.set_end(best.first);
  std::vector<std::pair<int64_t, size_t>> order;
  for (size_t m = 0; m < mixes.size(); ++m) {
    const int64_t fullness = bound.fullness(mixes[m]);
    if (fullness <= EndBound::kFull) order.emplace_back(fullness, m);
  }
  std::ranges::sort(order);
  for (const auto& [fullness, mix] : order) {
    if (mix == best.second || bound.fullness(mixes[mix]) > EndBound::kFull) continue;
    // Ties go to the first mix.
    const int64_t ns = trials_ns(times_, mixes[mix], orders_, best.first + (mix < best.second ? 1 : 0));
    if (ns == kNever) continue;
    best = {ns, mix};
    bound.set_end(ns);
  }
  return best.second;
}

}  // namespace sluice::published
