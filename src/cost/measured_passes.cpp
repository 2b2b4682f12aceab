#include "cost/measured_passes.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "model/parameter_count.h"

namespace sluice::cost {

int64_t measured_pass_ns(const model::Model& model) {
  struct Measured {
    int64_t parameters;
    int64_t ns;
  };
  constexpr std::array<Measured, 3> kMeasured = {
      {{6'738'000'000, 629'400'000}, {13'016'000'000, 1'132'600'000}, {32'529'000'000, 2'789'000'000}}};
  const int64_t parameters = model::parameter_count(model);
  const auto nearest = std::ranges::min_element(
      kMeasured, {}, [&](const Measured& of) { return std::abs(of.parameters - parameters); });
  return static_cast<int64_t>(static_cast<__int128>(nearest->ns) * parameters / nearest->parameters);
}

CostModel with_measured_passes(const CostModel& cost) {
  CostModel::Options options = cost.options();
  options.measured_pass_ns = measured_pass_ns(options.model);
  return cost.with(std::move(options));
}

bool gathers_between_nodes(const strategy::Pipeline& pipeline, const strategy::Topology& topology) {
  const strategy::Scheme& scheme = pipeline.scheme;
  if (scheme.fsdp == 1) return false;
  for (int lane = 0; lane < scheme.cp; lane += scheme.fsdp) {
    const auto [first, last] = std::ranges::minmax(pipeline.fsdp_group(0, lane, 0));
    if (!topology.same_node(first, last)) return true;
  }
  return false;
}

bool gathers_between_nodes(const strategy::Strategy& strategy, const strategy::Topology& topology) {
  return std::ranges::any_of(strategy.pipelines, [&](const strategy::Pipeline& pipeline) {
    return gathers_between_nodes(pipeline, topology);
  });
}

}  // namespace sluice::cost
