#include "plan/width_times.h"

#include <algorithm>

namespace sluice::plan {

WidthTimes::WidthTimes(const SchemeCost& scheme, std::span<const int64_t> lengths,
                       const std::vector<int>& widths)
    : scheme_(scheme) {
  for (const int width : widths) widths_.push_back(scheme.on(width));
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t length = lengths[i];
    if (i == 0 || length != lengths[i - 1]) {
      const int fewest = scheme.fewest_lanes(length);
      const int64_t most = std::max<int64_t>(fewest, length / 2);
      lengths_.push_back({.tokens = length,
                          .work_ns = scheme.load_ns(scheme.share_of(length, 1)),
                          .first_width = width_of(fewest),
                          .end_width = width_of(most + 1)});
    }
    length_of_.push_back(static_cast<int>(lengths_.size()) - 1);
  }
}

int WidthTimes::width_of(int64_t lanes) const {
  return static_cast<int>(std::ranges::lower_bound(widths_, lanes, {}, &SchemeCost::OnLanes::lanes) -
                          widths_.begin());
}

const WidthTimes::OnLanes& WidthTimes::on(int place, int width) {
  Length& length = lengths_[static_cast<size_t>(length_of_[static_cast<size_t>(place)])];
  const auto at = static_cast<size_t>(width);
  if (length.on_lanes.size() <= at) length.on_lanes.resize(at + 1);
  OnLanes& on = length.on_lanes[at];
  if (!on.known) {
    on.share = scheme_.share_of(length.tokens, lanes(width));
    on.alone = takes(on.share, width);
    on.known = true;
  }
  return on;
}

}  // namespace sluice::plan
