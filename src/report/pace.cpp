#include "report/pace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace sluice::report {
namespace {

// Of two in the middle the lower one: of two ranks the faster is what the other is compared with.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

double mean(const std::deque<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

std::vector<double> relative_paces(std::span<const int64_t> ppm) {
  std::vector<double> known;
  for (const int64_t pace : ppm) {
    if (pace > 0) known.push_back(static_cast<double>(pace));
  }
  std::vector<double> relative(ppm.size(), 0);
  if (known.size() < 2) return relative;
  const double usual = median(known);
  for (size_t rank = 0; rank < ppm.size(); ++rank) relative[rank] = static_cast<double>(ppm[rank]) / usual;
  return relative;
}

// The deviation of a window's mean, from how far successive paces of a rank lie apart, which one that becomes
// slow changes once: 1.4826 times their median is a robust deviation of differences, √2 of a single pace's.
double PaceWatch::noise() const {
  if (jumps_.empty()) return 0;
  return 1.4826 * median({jumps_.begin(), jumps_.end()}) / std::sqrt(2.0 * kWindow);
}

std::vector<PaceChange> PaceWatch::add(const std::vector<double>& paces) {
  if (paces.size() != logs_.size()) {
    logs_.assign(paces.size(), {});
    slow_.assign(paces.size(), 0);
    jumps_.clear();
  }
  for (size_t rank = 0; rank < paces.size(); ++rank) {
    if (paces[rank] <= 0) continue;
    const double own = std::log(paces[rank]);
    if (!logs_[rank].empty()) jumps_.push_back(std::abs(own - logs_[rank].back()));
    logs_[rank].push_back(own);
    if (logs_[rank].size() > kWindow) logs_[rank].pop_front();
  }
  while (jumps_.size() > kNoiseSteps * paces.size()) jumps_.pop_front();
  const double beyond = kDeviations * noise();
  std::vector<PaceChange> changes;
  for (size_t rank = 0; rank < logs_.size(); ++rank) {
    if (logs_[rank].size() < kWindow) continue;
    const double own = mean(logs_[rank]);
    const bool slow = slow_[rank] != 0 ? own > std::log(kRecovered) : own > std::max(std::log(kSlow), beyond);
    if (slow == (slow_[rank] != 0)) continue;
    slow_[rank] = slow ? 1 : 0;
    changes.push_back({static_cast<int>(rank), slow, std::exp(own)});
  }
  return changes;
}

std::vector<double> PaceWatch::paces() const {
  std::vector<double> paces;
  for (const std::deque<double>& logs : logs_)
    paces.push_back(logs.size() < kWindow ? 0 : std::exp(mean(logs)));
  return paces;
}

std::vector<int> PaceWatch::slow_ranks() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < slow_.size(); ++rank) {
    if (slow_[rank] != 0) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::string to_text(const PaceChange& change) {
  char pace[16];
  std::snprintf(pace, sizeof pace, "%.2f", change.pace);
  if (!change.slow) return base::text("rank ", change.rank, " is no longer slow: its pace is ", pace);
  const std::string costs =
      change.step_ns > 0 ? base::text("; steps like this one take ", base::human_duration(change.step_ns),
                                      " by their plan, ", base::human_duration(change.without_ns),
                                      " were it like the others")
                         : "";
  return base::text("rank ", change.rank, " is slow: for what it computes it has taken ", pace,
                    " times as long as the other ranks over ", PaceWatch::kWindow,
                    " steps, which wait for it", costs,
                    ": look at its machine's other load, clocks and temperature");
}

}  // namespace sluice::report
