#include "published/dispatch.h"

#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace sluice::published {

std::vector<std::vector<int>> trial_orders(size_t sequences, const DispatchOptions& options) {
  SLUICE_ASSERT(options.trials >= 1, "dispatch needs at least one trial");
  std::vector<int> order(sequences);
  std::iota(order.begin(), order.end(), 0);
  base::Rng rng(options.seed, options.stream);
  std::vector<std::vector<int>> orders;
  for (int trial = 0; trial < options.trials; ++trial) {
    rng.shuffle(order);
    orders.push_back(order);
  }
  return orders;
}

std::optional<Dispatch> dispatch(std::span<const int64_t> lengths,
                                 std::span<const plan::SchemeCost* const> pipelines,
                                 const DispatchOptions& options) {
  const DispatchTimes times(lengths, pipelines, sequence_time(options.constants));
  if (!times.feasible()) return std::nullopt;
  std::optional<Dispatch> best;
  for (const std::vector<int>& order : trial_orders(lengths.size(), options)) {
    Dispatch next = dispatch_in_order(times, order, options.tie_rule);
    if (!best || next.estimated_ns < best->estimated_ns) best = std::move(next);
  }
  return best;
}

int64_t estimated_ns(std::span<const int64_t> lengths, std::span<const plan::SchemeCost* const> pipelines,
                     std::span<const int> pipeline_of, ConstantRule constants) {
  const DispatchTimes times(lengths, pipelines, sequence_time(constants));
  std::vector<DispatchLoad> loads = times.empty_loads();
  for (size_t s = 0; s < lengths.size(); ++s) {
    loads[static_cast<size_t>(pipeline_of[s])].add(times.ns(static_cast<int>(s), pipeline_of[s]));
  }
  int64_t most_ns = 0;
  for (const DispatchLoad& load : loads) most_ns = std::max(most_ns, load.total_ns());
  return most_ns;
}

}  // namespace sluice::published
