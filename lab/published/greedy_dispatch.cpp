#include "published/greedy_dispatch.h"

#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace sluice::published {
namespace {

// Loads of neighbouring pipelines of one scheme in a tree of minima over halves, quarters and so on. So the
// first that ends by a limit, and the one that ends first, are found without visiting all pipelines.
class SchemeLoads {
 public:
  SchemeLoads(size_t scheme, std::vector<int> pipelines, DispatchLoad empty)
      : scheme_(scheme), pipelines_(std::move(pipelines)), loads_(pipelines_.size(), empty) {
    while (leaves_ < loads_.size()) leaves_ *= 2;
    nodes_.assign(2 * leaves_, Least{kNever, kNever});
    for (size_t at = 0; at < loads_.size(); ++at) update(at);
  }
  size_t scheme() const { return scheme_; }
  int pipeline(size_t at) const { return pipelines_[at]; }
  int64_t total_ns(size_t at) const { return loads_[at].total_ns(); }
  void add(size_t at, int64_t ns) {
    loads_[at].add(ns);
    update(at);
  }

  struct Found {
    int64_t ns = kNever;
    size_t at = 0;
    bool operator==(const Found&) const = default;
    auto operator<=>(const Found&) const = default;
  };
  // The first pipeline that ends by the limit with a sequence of this time.
  std::optional<size_t> first_within(int64_t ns, int64_t limit_ns) const {
    return first_within(1, ns, limit_ns);
  }
  // The pipeline that ends first with the sequence, the first of equals.
  Found soonest(int64_t ns) const {
    Found best;
    soonest(1, 0, leaves_, ns, best);
    return best;
  }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 2;
  // DispatchLoad::total_with is the larger of total_ns + ns and sum_ns + ns + bubbles · ns.
  struct Least {
    int64_t total_ns = 0;
    int64_t sum_ns = 0;
  };
  int64_t at_least_ns(size_t node, int64_t ns) const {
    return std::max(nodes_[node].total_ns + ns, nodes_[node].sum_ns + ns + loads_[0].bubbles * ns);
  }
  void update(size_t at) {
    size_t node = leaves_ + at;
    nodes_[node] = {loads_[at].total_ns(), loads_[at].sum_ns};
    for (node /= 2; node > 0; node /= 2) {
      const Least &a = nodes_[2 * node], &b = nodes_[2 * node + 1];
      nodes_[node] = {std::min(a.total_ns, b.total_ns), std::min(a.sum_ns, b.sum_ns)};
    }
  }
  std::optional<size_t> first_within(size_t node, int64_t ns, int64_t limit_ns) const {
    if (at_least_ns(node, ns) > limit_ns) return std::nullopt;
    if (node >= leaves_) return node - leaves_;
    const std::optional<size_t> found = first_within(2 * node, ns, limit_ns);
    return found ? found : first_within(2 * node + 1, ns, limit_ns);
  }
  // Searches the leaves [begin, begin + count).
  void soonest(size_t node, size_t begin, size_t count, int64_t ns, Found& best) const {
    const Found hoped{at_least_ns(node, ns), begin};
    if (hoped >= best) return;
    if (node >= leaves_) {
      best = hoped;
      return;
    }
    const size_t half = count / 2;
    const bool right_first = at_least_ns(2 * node + 1, ns) < at_least_ns(2 * node, ns);
    if (right_first) soonest(2 * node + 1, begin + half, half, ns, best);
    soonest(2 * node, begin, half, ns, best);
    if (!right_first) soonest(2 * node + 1, begin + half, half, ns, best);
  }

  size_t scheme_;
  std::vector<int> pipelines_;
  std::vector<DispatchLoad> loads_;
  size_t leaves_ = 1;
  std::vector<Least> nodes_;  // the children of n are 2n and 2n + 1
};

// Pipelines from the largest MaxLen down, in runs of one scheme.
std::vector<SchemeLoads> runs_of(const DispatchTimes& times) {
  const std::vector<DispatchLoad> empty = times.empty_loads();
  const std::vector<int>& order = times.largest_first();
  std::vector<SchemeLoads> runs;
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const size_t scheme = times.scheme_of(order[begin]);
    while (end < order.size() && times.scheme_of(order[end]) == scheme) ++end;
    runs.emplace_back(scheme,
                      std::vector<int>(order.begin() + static_cast<std::ptrdiff_t>(begin),
                                       order.begin() + static_cast<std::ptrdiff_t>(end)),
                      empty[static_cast<size_t>(order[begin])]);
  }
  return runs;
}

struct Place {
  size_t run = 0;
  size_t at = 0;
};

// A load only grows, so the maximum after adding to a pipeline is the larger of the present maximum and that
// pipeline's new load. The first pipeline that stays below the maximum raises nothing. If there is none, or
// if own loads break ties, the choice is the pipeline that ends first.
Place best_place(const DispatchTimes& times, int sequence, const std::vector<SchemeLoads>& runs,
                 int64_t most_ns, TieRule tie_rule) {
  Place best;
  SchemeLoads::Found soonest;
  for (size_t run = 0; run < runs.size(); ++run) {
    const int64_t ns = times.scheme_ns(sequence, runs[run].scheme());
    if (ns == DispatchTimes::kDoesNotFit) break;  // no later pipeline holds it either
    if (tie_rule == TieRule::kFirst) {
      if (const auto at = runs[run].first_within(ns, most_ns)) return {run, *at};
    }
    const SchemeLoads::Found found = runs[run].soonest(ns);
    if (found.ns >= soonest.ns) continue;
    soonest = found;
    best = {run, found.at};
  }
  return best;
}

}  // namespace

DispatchTimes::DispatchTimes(std::span<const int64_t> lengths,
                             std::span<const plan::SchemeCost* const> pipelines, SequenceTime time)
    : pipelines_(pipelines.begin(), pipelines.end()), largest_first_(pipelines.size()) {
  std::iota(largest_first_.begin(), largest_first_.end(), 0);
  std::stable_sort(largest_first_.begin(), largest_first_.end(), [&](int a, int b) {
    return pipelines_[static_cast<size_t>(a)]->max_len_tokens() >
           pipelines_[static_cast<size_t>(b)]->max_len_tokens();
  });
  for (const plan::SchemeCost* pipeline : pipelines) {
    const auto known = std::find(schemes_.begin(), schemes_.end(), pipeline);
    scheme_of_.push_back(static_cast<size_t>(known - schemes_.begin()));
    if (known == schemes_.end()) schemes_.push_back(pipeline);
  }
  times_ns_.reserve(lengths.size() * schemes_.size());
  for (const int64_t length : lengths) {
    bool fits_any = false;
    for (const plan::SchemeCost* scheme : schemes_) {
      const bool fits = length <= scheme->max_len_tokens();
      times_ns_.push_back(fits ? time(*scheme, length) : kDoesNotFit);
      fits_any = fits_any || fits;
    }
    feasible_ = feasible_ && fits_any;
  }
}

std::vector<DispatchLoad> DispatchTimes::empty_loads() const {
  std::vector<DispatchLoad> loads;
  for (const plan::SchemeCost* pipeline : pipelines_) loads.push_back({.bubbles = pipeline->scheme().pp - 1});
  return loads;
}

std::vector<int> longest_first(std::span<const int64_t> lengths) {
  std::vector<int> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  return order;
}

Dispatch dispatch_in_order(const DispatchTimes& times, std::span<const int> order, TieRule tie_rule) {
  Dispatch result{.pipeline_of = std::vector<int>(order.size(), 0)};
  std::vector<SchemeLoads> runs = runs_of(times);
  for (const int sequence : order) {
    const auto [run, at] = best_place(times, sequence, runs, result.estimated_ns, tie_rule);
    SchemeLoads& loads = runs[run];
    loads.add(at, times.scheme_ns(sequence, loads.scheme()));
    result.estimated_ns = std::max(result.estimated_ns, loads.total_ns(at));
    result.pipeline_of[static_cast<size_t>(sequence)] = loads.pipeline(at);
  }
  return result;
}

}  // namespace sluice::published
