#include "watch/scatter.h"

#include <cmath>

#include "watch/figures.h"

namespace sluice::watch {

// The mean of n logs takes 1/n of the variance away. The median of differences times 1.4826 is a robust
// deviation of differences, √2 times that of a single log: a rank that becomes slow for good adds one jump.
void Scatter::add(std::span<const double> slowdowns) {
  if (slowdowns.empty()) return;
  if (slowdowns.size() != last_.size()) *this = {};
  last_.resize(slowdowns.size(), kNotKnown);
  double sum = 0;
  int known = 0;
  for (const double slowdown : slowdowns) {
    if (!(slowdown > 0)) continue;
    sum += std::log(slowdown);
    ++known;
  }
  ++steps_;
  for (size_t rank = 0; rank < slowdowns.size(); ++rank) {
    const bool compares = slowdowns[rank] > 0 && known > 1;
    const double own = compares ? std::log(slowdowns[rank]) - sum / known : kNotKnown;
    const double jump = std::abs(own - last_[rank]) * std::sqrt(known / std::max(1.0, known - 1.0));
    if (!std::isnan(jump)) jumps_.push_back(jump);
    last_[rank] = own;
  }
  if (steps_ < kSteps) return;
  deviation_ = jumps_.empty() ? 0 : 1.4826 * median(jumps_) / std::sqrt(2.0);
  jumps_.clear();
  steps_ = 0;
}

}  // namespace sluice::watch
