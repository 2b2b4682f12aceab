#include "graph/step_prediction.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "graph/shared_cores.h"
#include "graph/step_times.h"
#include "strategy/strategy.h"

namespace sluice::graph {
namespace {

constexpr int64_t kTimedNodes = 1 << 18;  // in all draws together
constexpr int64_t kLeastPairs = 4;
constexpr int64_t kMostPairs = 64;
constexpr double kLeastPace = 0.1;

// By rank: the first TP rank of its lane and stage; the rank itself where it is idle.
std::vector<int> first_of_tp_group(const StepGraph& graph) {
  std::vector<int> first;
  for (int rank = 0; rank < graph.world_size; ++rank) first.push_back(rank);
  for (const strategy::PipelinePlan& plan : graph.plan.pipelines) {
    const auto tp = static_cast<size_t>(plan.pipeline.scheme.tp);
    const std::vector<int>& ranks = plan.pipeline.ranks;
    for (size_t i = 0; i < ranks.size(); ++i) first[static_cast<size_t>(ranks[i])] = ranks[i / tp * tp];
  }
  return first;
}

double end_ns(const StepGraph& graph, const Reality& reality) {
  int64_t latest_ns = 0;
  for (const std::vector<NodeTime>& of_rank : times_in(graph, reality)) {
    if (!of_rank.empty()) latest_ns = std::max(latest_ns, of_rank.back().end_ns);
  }
  return static_cast<double>(latest_ns);
}

}  // namespace

double expected_stretch(const StepGraph& graph, double deviation) {
  SLUICE_ASSERT(deviation >= 0, "times vary by less than nothing");
  const auto ranks = static_cast<size_t>(graph.world_size);
  Reality reality{.slowdown = std::vector<double>(ranks, 1),
                  .link = std::vector<double>(ranks, 1),
                  .begin_ns = std::vector<int64_t>(ranks, 0)};
  const double planned_ns = end_ns(graph, reality);
  if (deviation == 0 || planned_ns == 0) return 1;
  const std::vector<int> first = first_of_tp_group(graph);
  const auto pairs = static_cast<uint64_t>(
      std::clamp(kTimedNodes / std::max<int64_t>(1, std::ssize(graph.nodes)), kLeastPairs, kMostPairs));
  double sum_ns = 0;
  for (uint64_t pair = 0; pair < pairs; ++pair) {
    for (const double sign : {-1.0, 1.0}) {
      for (size_t rank = 0; rank < ranks; ++rank) {
        const double z = sign * base::random_normal(0, static_cast<uint64_t>(first[rank]), pair);
        reality.slowdown[rank] = std::max(kLeastPace, 1 + deviation * z);
      }
      sum_ns += end_ns(graph, reality);
    }
  }
  return sum_ns / (2 * static_cast<double>(pairs) * planned_ns);
}

int64_t StepPrediction::ns(const StepGraph& graph, double deviation) {
  if (!options_.measured) return graph.makespan_ns;
  const bool shares = options_.cores > 0 && options_.ranks > options_.cores;
  if (shares) return makespan_on_cores_ns(graph, options_.ranks, options_.cores);
  if (deviation == 0) return graph.makespan_ns;
  return std::llround(static_cast<double>(graph.makespan_ns) * stretch(graph, deviation));
}

double StepPrediction::stretch(const StepGraph& graph, double deviation) {
  if (deviation != deviation_) stretches_.clear();
  deviation_ = deviation;
  const auto [found, is_new] = stretches_.try_emplace(strategy::to_text(graph.plan.strategy()));
  if (is_new) found->second = expected_stretch(graph, deviation);
  return found->second;
}

}  // namespace sluice::graph
