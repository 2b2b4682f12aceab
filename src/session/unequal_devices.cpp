#include "session/unequal_devices.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::session {

using base::text;
using strategy::Device;
using strategy::Strategy;

namespace {

constexpr int kProposalsOfRun = 3;
constexpr int64_t kShortestContext = 1024;  // tokens: shorter contexts are of no use

// The speed of a run of ranks: its ranks over their slowdown.
double speed(const DeviceRun& run) {
  return static_cast<double>(run.ranks.size()) / run.device.slowdown_percent;
}

// A share of each batch's sequences, short and long ones alike: a sequence is taken whenever the summed share
// reaches the next whole number.
std::vector<std::vector<int64_t>> share_of(const std::vector<std::vector<int64_t>>& batches, double share,
                                           int64_t longest) {
  std::vector<std::vector<int64_t>> shares;
  for (std::vector<int64_t> batch : batches) {
    std::ranges::sort(batch);
    std::vector<int64_t>& own = shares.emplace_back();
    double due = 0;
    for (const int64_t length : batch) {
      due += share;
      if (due < 1) continue;
      due -= 1;
      if (length <= longest) own.push_back(length);
    }
    if (own.empty()) own.push_back(std::min(batch.front(), longest));
  }
  return shares;
}

// The options of the run's ranks alone.
plan::PlannerOptions options_of_run(const plan::PlannerOptions& options, const DeviceRun& run, double share,
                                    int64_t context) {
  plan::PlannerOptions own = options;
  own.devices.clear();
  own.world_size = static_cast<int>(run.ranks.size());
  own.context_length = context;
  own.sample_batches = share_of(options.sample_batches, share, context);
  own.max_strategies = std::min(kProposalsOfRun, options.max_strategies);
  return own;
}

// The costs on the run's devices. All ranks of the cluster own parameters.
cost::CostModel cost_of_run(const cost::CostModel& cost, const DeviceRun& run, int world_size) {
  cost::CostModel::Options machine = cost.options();
  machine.memory.device_bytes =
      run.device.memory_bytes > 0 ? run.device.memory_bytes : machine.memory.device_bytes;
  machine.memory.owner_bytes_per_parameter =
      std::max<int64_t>(1, machine.memory.owner_bytes_per_parameter * run.ranks.size() / world_size);
  return cost.with(machine);
}

std::optional<std::vector<Strategy>> proposals_of(const plan::PlannerOptions& options,
                                                  const cost::CostModel& cost, const Propose& propose) {
  try {
    return plan::strategies_of(propose(options, cost));
  } catch (const base::InfeasibleError&) {
    return std::nullopt;
  }
}

// Moves a strategy onto the run's ranks.
Strategy moved(Strategy strategy, const DeviceRun& run) {
  for (strategy::Pipeline& pipeline : strategy.pipelines) {
    for (int& rank : pipeline.ranks) rank += static_cast<int>(run.ranks.begin);
  }
  return strategy;
}

// Each of the first joined with each of the second, the best of both first, at most `most` of them.
std::vector<Strategy> joined(const std::vector<Strategy>& first, const std::vector<Strategy>& second,
                             size_t most) {
  std::vector<Strategy> all;
  for (size_t sum = 0; sum + 1 < first.size() + second.size(); ++sum) {
    for (size_t i = 0; i <= sum && i < first.size(); ++i) {
      if (sum - i >= second.size() || all.size() == most) continue;
      Strategy& strategy = all.emplace_back(first[i]);
      const auto& more = second[sum - i].pipelines;
      strategy.pipelines.insert(strategy.pipelines.end(), more.begin(), more.end());
    }
  }
  return all;
}

}  // namespace

std::vector<DeviceRun> runs_of(const std::vector<Device>& devices) {
  std::vector<DeviceRun> runs;
  for (int64_t rank = 0; rank < std::ssize(devices); ++rank) {
    const Device& device = devices[static_cast<size_t>(rank)];
    if (runs.empty() || runs.back().device.slowdown_percent != device.slowdown_percent)
      runs.push_back({{rank, rank}, device});
    DeviceRun& run = runs.back();
    run.ranks.end = rank + 1;
    run.device.memory_bytes = std::min(run.device.memory_bytes, device.memory_bytes);
  }
  return runs;
}

std::string to_text(const std::vector<DeviceRun>& runs) {
  std::vector<std::string> told;
  for (const auto& [ranks, device] : runs) {
    told.push_back(text(device.slowdown_percent, " % on ", ranks.size() == 1 ? "rank " : "ranks ",
                        ranks.begin, ranks.size() == 1 ? "" : text(" to ", ranks.end - 1)));
  }
  return base::join(told, ", ");
}

std::vector<Strategy> strategies_by_device(const plan::PlannerOptions& options, const cost::CostModel& cost,
                                           const Propose& propose) {
  const std::vector<DeviceRun> runs = runs_of(options.devices);
  const double all = std::accumulate(runs.begin(), runs.end(), 0.0,
                                     [](double sum, const DeviceRun& run) { return sum + speed(run); });
  bool held = false;
  std::vector<Strategy> strategies;
  for (const DeviceRun& run : runs) {
    const double share = speed(run) / all;
    const cost::CostModel own_cost = cost_of_run(cost, run, options.world_size);
    int64_t context = options.context_length;
    const auto proposed = [&] {
      return proposals_of(options_of_run(options, run, share, context), own_cost, propose);
    };
    auto own = proposed();
    held = held || own.has_value();
    for (; !own && context > kShortestContext; own = proposed()) context /= 2;
    if (!own) continue;  // its ranks stay idle
    for (Strategy& strategy : *own) strategy = moved(std::move(strategy), run);
    const auto most = static_cast<size_t>(std::max(1, options.max_strategies));
    strategies = strategies.empty() ? std::move(*own) : joined(strategies, *own, most);
  }
  if (!held) {
    throw base::InfeasibleError(text("no kind of device holds a sequence of ", options.context_length,
                                     " tokens by itself: shorten the context, or take more ranks of a kind"));
  }
  return strategies;
}

void check_devices(const std::vector<Strategy>& candidates, const std::vector<Device>& devices) {
  if (devices.empty()) return;
  for (const Strategy& candidate : candidates) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) {
      const Device& first = devices[static_cast<size_t>(pipeline.ranks.front())];
      const auto other = std::ranges::find_if(pipeline.ranks, [&](int rank) {
        return devices[static_cast<size_t>(rank)].slowdown_percent != first.slowdown_percent;
      });
      if (other == pipeline.ranks.end()) continue;
      throw base::InputError(
          text("strategy '", to_text(candidate), "': a pipeline ", to_text(pipeline.scheme),
               " lies on ranks ", pipeline.ranks.front(), " and ", *other,
               ", whose devices differ: order and size pipelines so that each lies on one kind"));
    }
  }
}

}  // namespace sluice::session
