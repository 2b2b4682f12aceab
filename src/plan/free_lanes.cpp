#include "plan/free_lanes.h"

#include <algorithm>
#include <functional>

namespace sluice::plan {

void FreeLanes::reset(std::span<const LaneRun> nodes) {
  runs_.clear();
  for (auto& listed : by_lanes_) listed.clear();
  first_whole_ = 0;
  whole_lanes_ = 0;
  for (const LaneRun& node : nodes) runs_.push_back({.lanes = node, .whole = true});
  for (size_t at = runs_.size(); at-- > 0;) list(at);
}

void FreeLanes::add(const Run& run) {
  runs_.push_back(run);
  list(runs_.size() - 1);
}

void FreeLanes::raise(size_t at, int64_t floor_ns) {
  unlist(at);
  runs_[at].floor_ns = floor_ns;
  list(at);
}

void FreeLanes::list(size_t at) {
  const Run& run = runs_[at];
  const auto lanes = static_cast<size_t>(run.lanes.lanes);
  if (lanes == 0) return;
  if (run.whole) whole_lanes_ += run.lanes.lanes;
  if (by_lanes_.size() <= lanes) by_lanes_.resize(lanes + 1);
  const Entry entry{run.floor_ns, at};
  by_lanes_[lanes].insert(std::ranges::lower_bound(by_lanes_[lanes], entry, std::less<>()), entry);
}

void FreeLanes::unlist(size_t at) {
  const Run& run = runs_[at];
  if (run.lanes.lanes == 0) return;
  if (run.whole) whole_lanes_ -= run.lanes.lanes;
  std::vector<Entry>& listed = by_lanes_[static_cast<size_t>(run.lanes.lanes)];
  listed.erase(std::ranges::lower_bound(listed, Entry{run.floor_ns, at}, std::less<>()));
}

int FreeLanes::most_lanes() const {
  for (size_t lanes = by_lanes_.size(); lanes-- > 1;) {
    if (!by_lanes_[lanes].empty()) return std::max(static_cast<int>(lanes), whole_lanes_);
  }
  return 0;
}

std::optional<FreeLanes::Place> FreeLanes::find(int lanes, bool inside, int64_t latest_ns) {
  if (!inside) return find_whole(lanes, latest_ns);
  for (auto most = static_cast<size_t>(lanes); most < by_lanes_.size(); ++most) {
    const std::vector<Entry>& listed = by_lanes_[most];
    const auto behind = std::ranges::upper_bound(listed, latest_ns, {}, &Entry::floor_ns);
    if (behind != listed.begin()) return Place{.run = (behind - 1)->run, .start_ns = (behind - 1)->floor_ns};
  }
  return std::nullopt;
}

std::optional<FreeLanes::Place> FreeLanes::find_whole(int lanes, int64_t latest_ns) {
  while (first_whole_ < runs_.size() && !runs_[first_whole_].whole) ++first_whole_;
  for (size_t begin = first_whole_; begin < runs_.size(); ++begin) {
    int found = 0;
    int64_t floor_ns = 0;
    for (size_t at = begin; at < runs_.size() && found < lanes; ++at) {
      const Run& run = runs_[at];
      if (!run.whole || run.lanes.first != runs_[begin].lanes.first + found) break;
      found += run.lanes.lanes;
      floor_ns = std::max(floor_ns, run.floor_ns);
    }
    if (found >= lanes && floor_ns <= latest_ns) return Place{.run = begin, .start_ns = floor_ns};
  }
  return std::nullopt;
}

std::pair<size_t, size_t> FreeLanes::take(size_t first, int lanes) {
  size_t at = first;
  for (int left = lanes; left > 0; ++at) {
    unlist(at);
    Run& run = runs_[at];
    const int taken = std::min(left, run.lanes.lanes);
    run.lanes = {run.lanes.first + taken, run.lanes.lanes - taken};
    run.whole = false;
    left -= taken;
    list(at);
  }
  return {first, at};
}

}  // namespace sluice::plan
