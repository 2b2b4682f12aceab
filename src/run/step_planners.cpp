#include "run/step_planners.h"

#include <iterator>
#include <utility>

#include "base/hash.h"
#include "session/low_precision_gemms.h"
#include "session/placed_experts.h"
#include "session/slow_ranks.h"

namespace sluice::run {

std::shared_ptr<const StepPlanners::Entry> StepPlanners::at(int64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto behind = entries_.upper_bound(step);
  return behind == entries_.begin() ? nullptr : std::prev(behind)->second;
}

void StepPlanners::compute_on(int64_t step, std::span<const strategy::Device> devices) {
  devices_.assign(devices.begin(), devices.end());
  enter(step);
}

void StepPlanners::slow_from(int64_t step, std::span<const int> pace_percent) {
  pace_percent_.assign(pace_percent.begin(), pace_percent.end());
  enter(step);
}

void StepPlanners::expert_placement_from(int64_t step, std::span<const plan::ExpertUse> use) {
  use_.assign(use.begin(), use.end());
  enter(step);
}

void StepPlanners::enter(int64_t step) {
  plan::Planner planner =
      devices_.empty() ? priced_ : session::decorated(priced_, session::on_devices(devices_));
  if (!use_.empty()) {
    const session::PlacedExperts placed = session::expert_placement(planner, use_);
    planner = session::decorated(planner, placed.candidates, placed.prices);
  }
  if (!pace_percent_.empty())
    planner = session::decorated(planner, session::slow_rank_candidates(pace_percent_));
  base::CanonicalBytes bytes;
  for (const int pace : pace_percent_) bytes.add(pace);
  for (const strategy::Device& device : devices_) {
    bytes.add("device").add(device.slowdown_percent);
    if (!device.low_precision) continue;
    for (const int layer : device.low_precision->layers) bytes.add(layer);
  }
  for (const strategy::Strategy& candidate : planner.options().candidates) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) {
      if (pipeline.placement) pipeline.placement->add_to(bytes);
    }
  }
  auto entry = std::make_shared<const Entry>(std::move(planner), bytes.hash());
  const std::lock_guard lock(mutex_);
  entries_.erase(entries_.lower_bound(step), entries_.end());
  entries_.emplace(step, std::move(entry));
}

}  // namespace sluice::run
