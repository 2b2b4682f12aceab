#include "plan/offload.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "cost/memory_cost.h"
#include "plan/scheme_cost.h"

namespace sluice::plan {

using base::kMilli;
using cost::Wide;

int64_t lanes_of_offload(const OffloadProblem& problem, int permille) {
  SLUICE_ASSERT(problem.layers > 0 && problem.lane_bytes > 0, "lanes that hold nothing");
  const int64_t leaving = std::max<int64_t>(0, problem.layers - cost::kLayersThatStay);
  const Wide held = Wide{problem.sequence_bytes} *
                    (Wide{problem.layers - leaving} * kMilli + Wide{leaving} * (kMilli - permille));
  const Wide lane = Wide{problem.layers} * problem.lane_bytes * kMilli;
  return static_cast<int64_t>((held + lane - 1) / lane);
}

OffloadChoice choose_offload(const OffloadProblem& problem) {
  const Wide hidden_bytes = Wide{problem.layer_ns} * problem.host_bytes_per_s / base::kNano;
  const Wide share =
      problem.sequence_bytes == 0 ? Wide{kMilli} : hidden_bytes * kMilli / problem.sequence_bytes;
  const int most = static_cast<int>(std::min<Wide>(kMilli, share));
  const int64_t fewest = lanes_of_offload(problem, most);
  int least = 0;
  for (int high = most; least < high;) {
    const int middle = least + (high - least) / 2;
    if (lanes_of_offload(problem, middle) == fewest) {
      high = middle;
    } else {
      least = middle + 1;
    }
  }
  return {least, fewest};
}

namespace {

constexpr int kOffloadStepPermille = 50;

// Whether the first block's forward on a lane's work takes at least as long as its copies.
bool hides(const cost::CostModel& cost, const strategy::Scheme& scheme, const cost::Work& work) {
  const int64_t first = cost.program().blocks().begin;
  const int64_t layer_ns = cost.cell_ns(scheme, cost::CellKind::kForward, {first, first + 1}, work);
  const int64_t bytes = cost::MemoryCost(cost, scheme).offloaded_bytes(first, work.tokens);
  return cost.options().host.of_bytes(bytes) <= layer_ns;
}

cost::CostModel offloading(const cost::CostModel& cost, int permille) {
  strategy::MemoryPolicy policy = cost.policy();
  policy.offload_permille = permille;
  return cost.under(policy);
}

}  // namespace

int hidden_permille(const cost::CostModel& cost, std::span<const strategy::Strategy> strategies,
                    int world_size) {
  int hidden = 0;
  for (int permille = kOffloadStepPermille; permille <= kMilli; permille += kOffloadStepPermille) {
    const cost::CostModel under = offloading(cost, permille);
    for (const strategy::Strategy& strategy : strategies) {
      for (const strategy::Pipeline& pipeline : strategy.pipelines) {
        const SchemeCost scheme(pipeline.scheme, under, world_size);
        if (!hides(under, pipeline.scheme, {.tokens = scheme.lane_max_len_tokens(), .squares = 0}))
          return hidden;
      }
    }
    hidden = permille;
  }
  return hidden;
}

int64_t host_bytes_for(const cost::CostModel& cost, std::span<const strategy::Strategy> strategies,
                       int world_size, int64_t length) {
  cost::CostModel::Options roomy = cost.options();
  roomy.memory.host_bytes = 0;
  const cost::CostModel unlimited = cost.with(std::move(roomy));
  int64_t least = 0;
  for (const strategy::Strategy& strategy : strategies) {
    for (const strategy::Pipeline& pipeline : strategy.pipelines) {
      const SchemeCost scheme(pipeline.scheme, unlimited, world_size);
      if (scheme.max_len_tokens() < length) continue;
      const int64_t lanes = scheme.fewest_lanes(length);
      const base::Interval blocks = cost.program().blocks_in(cost.stage_run(pipeline.scheme, 0));
      int64_t bytes = 0;
      for (int64_t block = blocks.begin; block + cost::kLayersThatStay < blocks.end; ++block) {
        bytes += cost::MemoryCost(cost, pipeline.scheme).offloaded_bytes(block, (length + lanes - 1) / lanes);
      }
      if (least == 0 || bytes < least) least = bytes;
    }
  }
  return least;
}

}  // namespace sluice::plan
