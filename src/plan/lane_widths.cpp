#include "plan/lane_widths.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "plan/precision.h"

namespace sluice::plan {

LaneWidths::LaneWidths(const Packing& packing)
    : packing_(packing), scheme_(packing.scheme), known_ns_(0, {}) {
  const int widest = packing.node_lanes();
  int power = 1;
  while (2 * power < widest) power *= 2;
  if (widest > 1) node_widths_.push_back(widest);
  for (; power > 1; power /= 2) node_widths_.push_back(power);
  allowed_.push_back(1);
  allowed_.insert(allowed_.end(), node_widths_.rbegin(), node_widths_.rend());
  // Beyond a node by halves, so that a sequence takes at most a quarter more or fewer lanes than it should.
  for (int width = widest; width < scheme_.scheme().cp;) {
    width = std::min(scheme_.scheme().cp, std::max(width + 1, width + width / 2));
    allowed_.push_back(width);
  }
  known_ns_ = ByWidth<int64_t>(packing.lengths.size(), allowed_);
}

int64_t LaneWidths::lane_ns(int place, int width) const {
  return known_ns_.of(place, width, [&] { return scheme_.lane_ns(length(place), width); });
}

// The next wider or narrower ring that the sequence may have; 0: none.
int LaneWidths::next_width(int place, int lanes, bool wider) const {
  const auto most = static_cast<int>(std::max<int64_t>(1, length(place) / 2));
  const int fewest = scheme_.fewest_lanes(length(place));
  const auto at =
      std::ranges::find_if(allowed_, [&](int width) { return wider ? width > lanes : width >= lanes; });
  if (wider) return at == allowed_.end() || *at > most ? 0 : *at;
  if (at == allowed_.begin() || lanes == fewest) return 0;
  return std::max(fewest, *std::prev(at));
}

bool LaneWidths::shift(const std::vector<int>& widths,
                       const std::function<bool(std::vector<int>)>& consider) const {
  const auto count = static_cast<int>(widths.size());
  for (int begin = 0, end = 0; begin < count; begin = end) {
    const int lanes = widths[static_cast<size_t>(begin)];
    while (end < count && widths[static_cast<size_t>(end)] == lanes) ++end;
    for (const bool wider : {true, false}) {
      for (const int moved : {1, end - begin}) {
        std::vector<int> next = widths;
        const int from = wider ? begin : end - moved;
        for (int place = from; place < from + moved; ++place) {
          const int width = next_width(place, lanes, wider);
          if (width > 0) next[static_cast<size_t>(place)] = width;
        }
        if (next != widths && consider(std::move(next))) return true;
      }
    }
  }
  return false;
}

int LaneWidths::lanes_for(int place, const CutLimits& limits) const {
  const int fewest = scheme_.fewest_lanes(length(place));
  const auto most =
      static_cast<int>(std::min<int64_t>(scheme_.scheme().cp, std::max<int64_t>(1, length(place) / 2)));
  int best = 0;  // in a node
  int64_t best_ns = std::numeric_limits<int64_t>::max();
  const auto enough = [&](int count, int64_t limit_ns) {
    if (count < fewest || count > most) return false;
    const int64_t ns = lane_ns(place, count);
    if (ns < best_ns) best = count;
    best_ns = std::min(best_ns, ns);
    return ns <= limit_ns;
  };
  if (enough(1, limits.in_node_ns)) return 1;
  for (auto width = node_widths_.rbegin(); width != node_widths_.rend(); ++width) {
    if (enough(*width, limits.in_node_ns)) return *width;
  }
  if (best_ns <= limits.goal_ns) return best;
  // Where lanes only divide the time, so many are needed at least.
  const int64_t divided = best == 0 ? fewest : best * (best_ns / std::max<int64_t>(1, limits.goal_ns));
  const int widest = packing_.node_lanes();
  int64_t last_ns = std::numeric_limits<int64_t>::max() / 2;
  for (int count = std::max(widest + 1, static_cast<int>(std::min<int64_t>(divided, most))); count <= most;
       ++count) {
    if (enough(count, limits.goal_ns)) return count;
    const int64_t ns = lane_ns(place, count);
    // Rising from here on: some numbers of lanes cut heads or nodes badly, all of a node never.
    if (count % widest == 0 && ns > last_ns + last_ns / kNearPart) break;
    last_ns = std::min(last_ns, ns);
  }
  return best;
}

std::vector<int> LaneWidths::choose(const CutLimits& limits) const {
  std::vector<int> widths;
  for (int place = 0; place < static_cast<int>(packing_.lengths.size()); ++place) {
    const bool again = place > 0 && (widths.back() == 1 || length(place) == length(place - 1));
    widths.push_back(again ? widths.back() : lanes_for(place, limits));
  }
  return widths;
}

}  // namespace sluice::plan
