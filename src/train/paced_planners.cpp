#include "train/paced_planners.h"

#include <iterator>
#include <utility>

#include "base/hash.h"
#include "session/slow_ranks.h"

namespace sluice::train {

std::shared_ptr<const PacedPlanners::Entry> PacedPlanners::at(int64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto behind = entries_.upper_bound(step);
  return behind == entries_.begin() ? nullptr : std::prev(behind)->second;
}

void PacedPlanners::slow_from(int64_t step, std::span<const int> pace_percent) {
  base::CanonicalBytes bytes;
  for (const int pace : pace_percent) bytes.add(pace);
  auto entry = std::make_shared<const Entry>(session::planner_at(priced_, pace_percent), bytes.hash());
  const std::lock_guard lock(mutex_);
  entries_.erase(entries_.lower_bound(step), entries_.end());
  entries_.emplace(step, std::move(entry));
}

}  // namespace sluice::train
