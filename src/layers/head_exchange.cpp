#include "layers/head_exchange.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace sluice::layers {
namespace {

using Parcel = LaneChannel::Parcel;

int64_t heads_in(const std::vector<base::Interval>& heads) {
  int64_t count = 0;
  for (const base::Interval& interval : heads) count += interval.size();
  return count;
}

// Rows by lane, end to end.
std::vector<at::Tensor> by_lane(const HeadsLayout& layout, const at::Tensor& rows_AHD) {
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (const int64_t rows : layout.lane_rows) {
    parts.push_back(rows_AHD.narrow(0, begin, rows));
    begin += rows;
  }
  return parts;
}

// Dense, in the order of the intervals.
at::Tensor take_heads(const at::Tensor& x_THD, int64_t rows, const std::vector<base::Interval>& heads) {
  std::vector<at::Tensor> parts;
  for (const base::Interval& interval : heads) {
    parts.push_back(x_THD.narrow(0, 0, rows).narrow(1, interval.begin, interval.size()));
  }
  return at::cat(parts, 1);
}

// Sends each lane its part and receives its own from each, the nearest lanes first.
void exchange(LaneChannel& channel, const HeadsLayout& layout, const std::vector<at::Tensor>& to,
              const std::vector<at::Tensor>& from) {
  std::vector<Parcel> parcels;
  for (int distance = 1; distance < layout.lanes(); ++distance) {
    const auto next = static_cast<size_t>((layout.lane + distance) % layout.lanes());
    const auto previous = static_cast<size_t>((layout.lane + layout.lanes() - distance) % layout.lanes());
    parcels.push_back({from[previous], layout.members[previous], Parcel::Way::kFrom});
    parcels.push_back({to[next], layout.members[next], Parcel::Way::kTo});
  }
  channel.exchange(parcels).wait(to.front().device());
}

// Whether some head is in the cuts of two lanes.
bool overlaps(const HeadCut& cut) {
  std::vector<base::Interval> all;
  for (const auto& heads : cut) all.insert(all.end(), heads.begin(), heads.end());
  std::ranges::sort(all, {}, &base::Interval::begin);
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i].begin < all[i - 1].end) return true;
  }
  return false;
}

}  // namespace

int64_t HeadsLayout::rows() const { return std::accumulate(lane_rows.begin(), lane_rows.end(), int64_t{0}); }

at::Tensor to_heads(LaneChannel& channel, const HeadsLayout& layout, const HeadCut& cut,
                    const at::Tensor& x_THD) {
  SLUICE_ASSERT(static_cast<int>(cut.size()) == layout.lanes(), "heads are cut for other lanes");
  const auto own = static_cast<size_t>(layout.lane);
  const int64_t rows = layout.lane_rows[own];
  const at::Tensor wire_AHD = at::empty({layout.rows(), heads_in(cut[own]), x_THD.size(2)}, x_THD.options());
  const std::vector<at::Tensor> from = by_lane(layout, wire_AHD);
  std::vector<at::Tensor> to(cut.size());
  for (size_t lane = 0; lane < cut.size(); ++lane) {
    to[lane] = lane == own ? from[own] : take_heads(x_THD, rows, cut[lane]);
  }
  from[own].copy_(take_heads(x_THD, rows, cut[own]));
  exchange(channel, layout, to, from);
  to.clear();
  return wire_AHD.index_select(0, layout.wire_row_A);
}

void to_tokens(LaneChannel& channel, const HeadsLayout& layout, const HeadCut& cut, const at::Tensor& y_AHD,
               const at::Tensor& x_THD) {
  SLUICE_ASSERT(static_cast<int>(cut.size()) == layout.lanes(), "heads are cut for other lanes");
  const auto own = static_cast<size_t>(layout.lane);
  const int64_t rows = layout.lane_rows[own];
  const std::vector<at::Tensor> to = by_lane(layout, y_AHD.index_select(0, layout.attended_row_A));
  std::vector<at::Tensor> from(cut.size());
  for (size_t lane = 0; lane < cut.size(); ++lane) {
    from[lane] =
        lane == own ? to[own] : at::empty({rows, heads_in(cut[lane]), x_THD.size(2)}, y_AHD.options());
  }
  exchange(channel, layout, to, from);

  const bool sums = overlaps(cut);
  const bool narrow = x_THD.element_size() < 4;
  at::Tensor sum_THD = x_THD.narrow(0, 0, rows);
  if (sums && narrow) sum_THD = at::empty(sum_THD.sizes(), x_THD.options().dtype(at::kFloat));
  if (sums) sum_THD.zero_();
  for (size_t lane = 0; lane < cut.size(); ++lane) {
    int64_t head = 0;
    for (const base::Interval& heads : cut[lane]) {
      const at::Tensor part_THD = from[lane].narrow(1, head, heads.size());
      const at::Tensor there_THD = sum_THD.narrow(1, heads.begin, heads.size());
      if (sums) there_THD.add_(part_THD);
      if (!sums) there_THD.copy_(part_THD);
      head += heads.size();
    }
  }
  if (sums && narrow) x_THD.narrow(0, 0, rows).copy_(sum_THD);
  x_THD.narrow(0, rows, x_THD.size(0) - rows).zero_();
}

}  // namespace sluice::layers
