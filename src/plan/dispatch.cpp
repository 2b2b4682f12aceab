#include "plan/dispatch.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace sluice::plan {
namespace {

// Eq. 2 of one pipeline while it fills.
struct Load {
  int64_t sum_ns = 0;
  int64_t longest_ns = 0;
  int64_t bubbles = 0;  // PP − 1

  int64_t total_ns() const { return sum_ns + longest_ns * bubbles; }
  int64_t total_with(int64_t ns) const { return sum_ns + ns + std::max(longest_ns, ns) * bubbles; }
  void add(int64_t ns) {
    sum_ns += ns;
    longest_ns = std::max(longest_ns, ns);
  }
};

std::vector<Load> empty_loads(std::span<const SchemeCost* const> pipelines) {
  std::vector<Load> loads;
  for (const SchemeCost* pipeline : pipelines) loads.push_back({.bubbles = pipeline->scheme().pp - 1});
  return loads;
}

int64_t largest(const std::vector<Load>& loads) {
  int64_t most = 0;
  for (const Load& load : loads) most = std::max(most, load.total_ns());
  return most;
}

constexpr int64_t kDoesNotFit = -1;

class Dispatcher {
 public:
  Dispatcher(std::span<const int64_t> lengths, std::span<const SchemeCost* const> pipelines, TieRule tie_rule)
      : pipelines_(pipelines), tie_rule_(tie_rule), times_ns_(lengths.size() * pipelines.size()) {
    for (size_t s = 0; s < lengths.size(); ++s) {
      int choices = 0;
      for (size_t p = 0; p < pipelines.size(); ++p) {
        const bool fits = lengths[s] <= pipelines[p]->max_len_tokens();
        times_ns_[s * pipelines.size() + p] = fits ? time_of(lengths[s], s, p) : kDoesNotFit;
        choices += fits ? 1 : 0;
      }
      choices_.push_back(choices);
    }
  }

  bool feasible() const {
    return std::all_of(choices_.begin(), choices_.end(), [](int choices) { return choices > 0; });
  }

  // Sequences in `order`, those with fewer choices first.
  Dispatch trial(std::vector<int> order) const {
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return choices(a) < choices(b); });
    Dispatch result{.pipeline_of = std::vector<int>(choices_.size(), 0)};
    std::vector<Load> loads = empty_loads(pipelines_);
    int64_t most_ns = 0;
    for (const int sequence : order) {
      const int pipeline = best_pipeline(sequence, loads, most_ns);
      Load& load = loads[static_cast<size_t>(pipeline)];
      load.add(time_ns(sequence, pipeline));
      most_ns = std::max(most_ns, load.total_ns());
      result.pipeline_of[static_cast<size_t>(sequence)] = pipeline;
    }
    result.estimated_ns = most_ns;
    return result;
  }

 private:
  // Pipelines of one scheme share its times.
  int64_t time_of(int64_t length, size_t sequence, size_t pipeline) const {
    for (size_t p = 0; p < pipeline; ++p) {
      if (pipelines_[p] == pipelines_[pipeline]) return times_ns_[sequence * pipelines_.size() + p];
    }
    return pipelines_[pipeline]->sequence_ns(length);
  }
  int choices(int sequence) const { return choices_[static_cast<size_t>(sequence)]; }
  int64_t time_ns(int sequence, int pipeline) const {
    return times_ns_[static_cast<size_t>(sequence) * pipelines_.size() + static_cast<size_t>(pipeline)];
  }

  // A load only grows, so the maximum over all pipelines after adding to one is the larger of the present
  // maximum and that one's new load.
  int best_pipeline(int sequence, const std::vector<Load>& loads, int64_t most_ns) const {
    int best = -1;
    int64_t best_most_ns = std::numeric_limits<int64_t>::max();
    int64_t best_own_ns = std::numeric_limits<int64_t>::max();
    for (int pipeline = 0; pipeline < static_cast<int>(loads.size()); ++pipeline) {
      const int64_t ns = time_ns(sequence, pipeline);
      if (ns == kDoesNotFit) continue;
      const int64_t own_ns = loads[static_cast<size_t>(pipeline)].total_with(ns);
      const int64_t raised_ns = std::max(most_ns, own_ns);
      const bool wins_tie =
          tie_rule_ == TieRule::kOwnLoad && raised_ns == best_most_ns && own_ns < best_own_ns;
      if (best < 0 || raised_ns < best_most_ns || wins_tie) {
        best = pipeline;
        best_most_ns = raised_ns;
        best_own_ns = own_ns;
      }
    }
    return best;
  }

  std::span<const SchemeCost* const> pipelines_;
  TieRule tie_rule_;
  std::vector<int64_t> times_ns_;  // by sequence, then pipeline
  std::vector<int> choices_;       // pipelines that hold each sequence
};

}  // namespace

std::optional<Dispatch> dispatch(std::span<const int64_t> lengths,
                                 std::span<const SchemeCost* const> pipelines,
                                 const DispatchOptions& options) {
  SLUICE_ASSERT(options.trials >= 1, "dispatch needs at least one trial");
  const Dispatcher dispatcher(lengths, pipelines, options.tie_rule);
  if (!dispatcher.feasible()) return std::nullopt;

  std::vector<int> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  Dispatch best = dispatcher.trial(order);
  base::Rng rng(options.seed, options.stream);
  for (int trial = 1; trial < options.trials; ++trial) {
    rng.shuffle(order);
    Dispatch next = dispatcher.trial(order);
    if (next.estimated_ns < best.estimated_ns) best = std::move(next);
  }
  return best;
}

int64_t estimated_ns(std::span<const int64_t> lengths, std::span<const SchemeCost* const> pipelines,
                     std::span<const int> pipeline_of) {
  std::vector<Load> loads = empty_loads(pipelines);
  for (size_t s = 0; s < lengths.size(); ++s) {
    const auto p = static_cast<size_t>(pipeline_of[s]);
    loads[p].add(pipelines[p]->sequence_ns(lengths[s]));
  }
  return largest(loads);
}

}  // namespace sluice::plan
