// T: rows of this lane, R: rows of the engine step, N: query heads, K: key heads, D: dimensions of a head, L:
// lanes, E = D + 1: an output and its log-sum-exp.
#include "layers/cached_lanes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "ops/attention_merge.h"
#include "ops/device.h"
#include "ops/far_window.h"

namespace sluice::layers {
namespace {

using Parcel = LaneChannel::Parcel;

// Exchanges with each other lane: sends what `gives` returns for it, receives into what `takes` returns.
template <typename Gives, typename Takes>
void exchange(LaneChannel& channel, const CacheOfLanes& lanes, const at::Device& device, const Gives& gives,
              const Takes& takes) {
  std::vector<Parcel> parcels;
  for (int lane = 0; lane < static_cast<int>(lanes.members.size()); ++lane) {
    if (lane == lanes.own) continue;
    const int member = lanes.members[static_cast<size_t>(lane)];
    parcels.push_back({gives(lane), member, Parcel::Way::kTo});
    parcels.push_back({takes(lane), member, Parcel::Way::kFrom});
  }
  channel.exchange(parcels).wait(device);
}

at::Tensor slice_rows(const at::Tensor& x, base::Interval rows) {
  return x.narrow(0, rows.begin, rows.size());
}

base::Interval rows_of(const CacheOfLanes& lanes, int lane) { return lanes.rows[static_cast<size_t>(lane)]; }

// Queries, keys and values of the whole engine step.
at::Tensor gathered(LaneChannel& channel, const CacheOfLanes& lanes, const ops::AttentionInput& input) {
  const at::Tensor own_TJD =
      slice_rows(at::cat({input.q_TND, input.k_TKD, input.v_TKD}, 1), {0, lanes.own_rows().size()});
  if (lanes.all_compute_all()) return own_TJD;
  const at::Tensor all_RJD =
      at::empty({lanes.engine_step_rows, own_TJD.size(1), own_TJD.size(2)}, own_TJD.options());
  slice_rows(all_RJD, lanes.own_rows()).copy_(own_TJD);
  exchange(
      channel, lanes, own_TJD.device(), [&](int) { return own_TJD; },
      [&](int lane) { return slice_rows(all_RJD, rows_of(lanes, lane)); });
  return all_RJD;
}

// Attention of the step's queries to this lane's part of the cache. Rows that see nothing have a log-sum-exp
// of −inf.
at::Tensor seen_here(const RowLayout& layout, const ops::AttentionInput& on_cache) {
  const ops::AttentionResult seen = ops::nothing_seen(on_cache.q_TND);
  ops::AttentionInput within = on_cache;
  if (on_cache.window == 0) within.window = ops::kFarWindow;
  ops::attend_blocks(on_cache, layout.cached_through(on_cache.window), seen);
  ops::attend_blocks(within, layout.cached.lanes.within, seen);
  return at::cat({seen.out_TND, seen.lse_NT.t().unsqueeze(2)}, 2);
}

}  // namespace

ops::AttentionResult attend_over_lanes(LaneChannel& channel, const RowLayout& layout,
                                       const ops::AttentionInput& input, const CachedKeys& cached) {
  const CacheOfLanes& lanes = layout.cached.lanes;
  const at::Tensor all_RJD = gathered(channel, lanes, input);
  const int64_t queries = input.q_TND.size(1), keys = input.k_TKD.size(1);
  at::Tensor k_CKD = cached.k_RKD, v_CKD = cached.v_RKD;
  const auto kept = [&](int64_t first) {
    return all_RJD.narrow(1, first, keys).index_select(0, lanes.kept_row_T);
  };
  k_CKD.index_copy_(0, layout.cached.row_T, kept(queries));
  v_CKD.index_copy_(0, layout.cached.row_T, kept(queries + keys));
  ops::AttentionInput on_cache = input;
  on_cache.q_TND = all_RJD.narrow(1, 0, queries);
  on_cache.k_TKD = k_CKD;
  on_cache.v_TKD = v_CKD;
  const at::Tensor seen_RNE = seen_here(layout, on_cache);
  const base::Interval own = lanes.own_rows();
  const auto count = static_cast<int64_t>(lanes.members.size());
  const at::Tensor seen_LTNE = at::empty({count, own.size(), queries, seen_RNE.size(2)}, seen_RNE.options());
  seen_LTNE.select(0, lanes.own).copy_(slice_rows(seen_RNE, own));
  exchange(
      channel, lanes, seen_RNE.device(), [&](int lane) { return slice_rows(seen_RNE, rows_of(lanes, lane)); },
      [&](int lane) { return seen_LTNE.select(0, lane); });
  const int64_t dimensions = input.q_TND.size(2);
  const at::Tensor lse_LTN = seen_LTNE.select(3, dimensions);
  const at::Tensor lse_TN = at::logsumexp(lse_LTN, 0);
  const at::Tensor share_LTN = (lse_LTN - lse_TN).exp();
  const ops::AttentionResult result{at::zeros({layout.rows, queries, dimensions}, input.q_TND.options()),
                                    at::zeros({queries, layout.rows}, seen_RNE.options())};
  slice_rows(result.out_TND, {0, own.size()})
      .copy_((seen_LTNE.narrow(3, 0, dimensions) * share_LTN.unsqueeze(3)).sum(0));
  result.lse_NT.narrow(1, 0, own.size()).copy_(lse_TN.t());
  return result;
}

at::Tensor rows_of_engine_step(LaneChannel& channel, const CacheOfLanes& lanes, const at::Tensor& x_TH,
                               const std::vector<int64_t>& row_R) {
  // The places in row_R of the rows that a lane computed, which are one run.
  const auto wanted_of = [&](base::Interval rows) {
    const auto begin = std::ranges::lower_bound(row_R, rows.begin),
               end = std::ranges::lower_bound(row_R, rows.end);
    return base::Interval{begin - row_R.begin(), end - row_R.begin()};
  };
  const base::Interval own = wanted_of(lanes.own_rows());
  std::vector<int64_t> own_rows;
  for (int64_t i = own.begin; i < own.end; ++i)
    own_rows.push_back(row_R[static_cast<size_t>(i)] - lanes.own_rows().begin);
  const at::Tensor own_OH = x_TH.index_select(0, ops::to_device(own_rows, x_TH.device()));
  if (lanes.all_compute_all()) return own_OH;
  const at::Tensor all_RH = at::empty({static_cast<int64_t>(row_R.size()), x_TH.size(1)}, x_TH.options());
  slice_rows(all_RH, own).copy_(own_OH);
  exchange(
      channel, lanes, x_TH.device(), [&](int) { return own_OH; },
      [&](int lane) { return slice_rows(all_RH, wanted_of(rows_of(lanes, lane))); });
  return all_RH;
}

}  // namespace sluice::layers
