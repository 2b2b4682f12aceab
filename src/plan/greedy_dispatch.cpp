#include "plan/greedy_dispatch.h"

#include <limits>
#include <numeric>

namespace sluice::plan {
namespace {

// A load only grows, so the maximum over all pipelines after adding to one is the larger of the present
// maximum and that one's new load.
int best_pipeline(const DispatchTimes& times, int sequence, const std::vector<DispatchLoad>& loads,
                  int64_t most_ns, TieRule tie_rule) {
  int best = -1;
  int64_t best_most_ns = std::numeric_limits<int64_t>::max();
  int64_t best_own_ns = std::numeric_limits<int64_t>::max();
  for (const int pipeline : times.largest_first()) {
    const int64_t ns = times.ns(sequence, pipeline);
    if (ns == DispatchTimes::kDoesNotFit) break;  // nor does any after it
    const int64_t own_ns = loads[static_cast<size_t>(pipeline)].total_with(ns);
    const int64_t raised_ns = std::max(most_ns, own_ns);
    const bool wins_tie = tie_rule == TieRule::kOwnLoad && raised_ns == best_most_ns && own_ns < best_own_ns;
    if (raised_ns < best_most_ns || wins_tie) {
      best = pipeline;
      best_most_ns = raised_ns;
      best_own_ns = own_ns;
    }
  }
  return best;
}

}  // namespace

DispatchTimes::DispatchTimes(std::span<const int64_t> lengths, std::span<const SchemeCost* const> pipelines,
                             SequenceTime time)
    : pipelines_(pipelines.begin(), pipelines.end()), largest_first_(pipelines.size()) {
  std::iota(largest_first_.begin(), largest_first_.end(), 0);
  std::stable_sort(largest_first_.begin(), largest_first_.end(), [&](int a, int b) {
    return pipelines_[static_cast<size_t>(a)]->max_len_tokens() >
           pipelines_[static_cast<size_t>(b)]->max_len_tokens();
  });
  for (const SchemeCost* pipeline : pipelines) {
    const auto known = std::find(schemes_.begin(), schemes_.end(), pipeline);
    scheme_of_.push_back(static_cast<size_t>(known - schemes_.begin()));
    if (known == schemes_.end()) schemes_.push_back(pipeline);
  }
  times_ns_.reserve(lengths.size() * schemes_.size());
  for (const int64_t length : lengths) {
    bool fits_any = false;
    for (const SchemeCost* scheme : schemes_) {
      const bool fits = length <= scheme->max_len_tokens();
      times_ns_.push_back(fits ? time(*scheme, length) : kDoesNotFit);
      fits_any = fits_any || fits;
    }
    feasible_ = feasible_ && fits_any;
  }
}

std::vector<DispatchLoad> DispatchTimes::empty_loads() const {
  std::vector<DispatchLoad> loads;
  for (const SchemeCost* pipeline : pipelines_) loads.push_back({.bubbles = pipeline->scheme().pp - 1});
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
  std::vector<DispatchLoad> loads = times.empty_loads();
  for (const int sequence : order) {
    const int pipeline = best_pipeline(times, sequence, loads, result.estimated_ns, tie_rule);
    DispatchLoad& load = loads[static_cast<size_t>(pipeline)];
    load.add(times.ns(sequence, pipeline));
    result.estimated_ns = std::max(result.estimated_ns, load.total_ns());
    result.pipeline_of[static_cast<size_t>(sequence)] = pipeline;
  }
  return result;
}

// A longer sequence never fits more pipelines than a shorter one.
std::optional<Dispatch> dispatch_longest_first(std::span<const int64_t> lengths,
                                               std::span<const SchemeCost* const> pipelines) {
  const auto time = [](const SchemeCost& scheme, int64_t length) { return scheme.sequence_ns(length); };
  const DispatchTimes times(lengths, pipelines, time);
  if (!times.feasible()) return std::nullopt;
  return dispatch_in_order(times, longest_first(lengths), TieRule::kOwnLoad);
}

}  // namespace sluice::plan
