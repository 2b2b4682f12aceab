#include "cost/decode_cost.h"

#include <algorithm>

#include "base/error.h"
#include "cost/quadratic.h"

namespace sluice::cost {
namespace {

// The sum of min(k, window) over k from `first` to `last`; window 0: of k.
Wide seen(int64_t first, int64_t last, int64_t window) {
  if (last < first) return 0;
  const auto up_to = [&](int64_t k) -> Wide {
    const int64_t rising = window == 0 ? k : std::min(k, window);
    return Wide{rising} * (rising + 1) / 2 + Wide{k - rising} * window;
  };
  return up_to(last) - up_to(first - 1);
}

}  // namespace

void DecodeWork::add(int64_t begin, int64_t end, bool says, int64_t window) {
  if (end - begin == 1) {
    add_one_each(begin, window);
    sampled_rows -= says ? 0 : 1;
    return;
  }
  ++sequences;
  rows += end - begin;
  sampled_rows += says ? 1 : 0;
  const auto see = [&](AttentionWork& sight, int64_t through) {
    sight.chunk_keys += through == 0 ? end : std::min(end, through + end - begin - 1);
    sight.pairs += seen(begin + 1, end, through);
  };
  see(all, 0);
  if (window > 0) see(windowed, window);
}

void DecodeWork::add_one_each(int64_t begin, int64_t window) {
  ++sequences;
  ++rows;
  ++sampled_rows;
  all.keys += seen(begin + 1, begin + engine_steps, 0);
  if (window > 0) windowed.keys += seen(begin + 1, begin + engine_steps, window);
}

int64_t of_rows_ns(std::span<const DecodeCost::Point> points, int64_t rows) {
  SLUICE_ASSERT(!points.empty() && rows >= 0, "a pass of unknown cost");
  if (rows == 0) return 0;
  const auto above = std::ranges::lower_bound(points, rows, {}, &DecodeCost::Point::rows);
  if (above != points.end() && above->rows == rows) return above->ns;
  if (points.size() == 1 || above == points.begin()) return points.front().ns;
  const auto to = above == points.end() ? above - 1 : above, from = to - 1;
  const Wide beyond = Wide{rows - from->rows} * (to->ns - from->ns);
  return from->ns + static_cast<int64_t>(beyond / (to->rows - from->rows));
}

int64_t decode_ns(const DecodeCost& cost, const DecodeWork& work, int64_t rows, bool windowed) {
  const DecodeWork::AttentionWork& sight = windowed ? work.windowed : work.all;
  const Wide attending =
      cost.key * sight.keys + std::max(cost.key * sight.chunk_keys, cost.pair * sight.pairs);
  const Wide each = of_rows_ns(cost.by_rows, rows) + work.sequences * cost.state_ns;
  return narrow(work.engine_steps * each + (attending >> Quadratic::kFractionBits), kLongestNs);
}

}  // namespace sluice::cost
