#include "plan/width_times.h"

#include <algorithm>
#include <bit>

namespace sluice::plan {
namespace {

// Entries of the cache of priced work: half a MiB at most.
constexpr size_t kPricedPerPlace = 8, kFewestPriced = 64, kMostPriced = 8192;

// Multiplicative hashing by odd constants: the high bits depend on the whole key.
size_t mixed(const cost::Work& work, int width) {
  uint64_t key = static_cast<uint64_t>(work.squares) * 0x9e3779b97f4a7c15U;
  key += static_cast<uint64_t>(work.tokens) * 0xc2b2ae3d27d4eb4fU;
  key += static_cast<uint64_t>(width) * 0x165667b19e3779f9U;
  return (key ^ key >> 32) * 0x9e3779b97f4a7c15U >> 40;
}

}  // namespace

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

SchemeCost::Halves WidthTimes::takes(const cost::Work& work, int width) {
  const SchemeCost::OnLanes& on = widths_[static_cast<size_t>(width)];
  if (on.lanes() == 1) return on.halves(work);
  if (priced_.empty()) {
    const size_t wanted = kPricedPerPlace * length_of_.size();
    priced_.resize(std::bit_ceil(std::clamp(wanted, kFewestPriced, kMostPriced)));
  }
  Priced& priced = priced_[mixed(work, width) & (priced_.size() - 1)];
  if (!priced.is(work, width)) priced = {.work = work, .width = width, .takes = on.halves(work)};
  return priced.takes;
}

const WidthTimes::OnLanes& WidthTimes::priced(Length& length, int width) {
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
