// Results that several proposals for one machine share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "strategy/memory_policy.h"
#include "strategy/strategy.h"

namespace sluice::plan {

class StepOverhead;  // plan/proposal.h

// A quick plan's end, and the time of its step beside the schedule.
struct QuickStep {
  int64_t end_ns = 0;
  int64_t beside_ns = 0;
};

// One thread at a time. REQUIRES: all users have the same ranks, batches and seeds, and prices that differ in
// nothing but gathers inside a step and policies.
class KnownSteps {
 public:
  // The step of a batch under a strategy and a policy: a known one, or `make`'s. Strategies whose lanes share
  // parameters are planned anew each time, because gathers are part of their schedules.
  QuickStep step(const strategy::Strategy& strategy, const strategy::MemoryPolicy& policy, size_t batch,
                 const std::function<QuickStep()>& make) {
    if (gathers(strategy)) return make();
    Entry& entry = entry_of(strategy, policy);
    for (const auto& [known, step] : entry.steps) {
      if (known == batch) return step;
    }
    const QuickStep made = make();
    entry.steps.emplace_back(batch, made);
    return made;
  }

  // The same for StepOverhead::least_ns, which no gather inside a step is part of.
  int64_t least_beside_ns(const strategy::Strategy& strategy, const strategy::MemoryPolicy& policy,
                          const std::function<int64_t()>& make) {
    Entry& entry = entry_of(strategy, policy);
    if (!entry.least_beside_ns) entry.least_beside_ns = make();
    return *entry.least_beside_ns;
  }

  // The step overhead of all users, which keeps what strategies' pulls and pushes move: `make`'s first.
  // REQUIRES: all users have the same model and stages.
  std::shared_ptr<const StepOverhead> step_overhead(
      const std::function<std::shared_ptr<const StepOverhead>()>& make) {
    if (!step_overhead_) step_overhead_ = make();
    return step_overhead_;
  }

 private:
  struct Entry {
    strategy::Strategy strategy;
    strategy::MemoryPolicy policy;
    std::optional<int64_t> least_beside_ns = std::nullopt;
    std::vector<std::pair<size_t, QuickStep>> steps = {};  // by batch
  };

  Entry& entry_of(const strategy::Strategy& strategy, const strategy::MemoryPolicy& policy) {
    for (Entry& entry : entries_) {
      if (entry.policy == policy && entry.strategy == strategy) return entry;
    }
    entries_.push_back({strategy, policy});
    return entries_.back();
  }

  static bool gathers(const strategy::Strategy& strategy) {
    for (const strategy::Pipeline& pipeline : strategy.pipelines) {
      if (pipeline.scheme.fsdp > 1) return true;
    }
    return false;
  }

  std::vector<Entry> entries_;
  std::shared_ptr<const StepOverhead> step_overhead_;
};

}  // namespace sluice::plan
