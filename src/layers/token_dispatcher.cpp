#include "layers/token_dispatcher.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "model/expert_slots.h"
#include "ops/device.h"
#include "ops/grouped_product.h"

namespace sluice::layers {

using ParcelWay = LaneChannel::Parcel::Way;

std::vector<base::Interval> dispatch_chunks_of(const RunCounts& counts, int64_t most_rows) {
  const int lanes = counts.lanes();
  std::vector<base::Interval> waves;
  std::vector<int64_t> in(static_cast<size_t>(lanes)), out(in.size());
  const auto fits_with = [&](int64_t run) {
    for (int lane = 0; lane < lanes; ++lane) {
      int64_t more_in = 0, more_out = 0;
      for (int other = 0; other < lanes; ++other) {
        more_in += counts.at(run, other, lane);
        more_out += counts.at(run, lane, other);
      }
      in[static_cast<size_t>(lane)] += more_in;
      out[static_cast<size_t>(lane)] += more_out;
    }
    return std::ranges::max(in) <= most_rows && std::ranges::max(out) <= most_rows;
  };
  for (int64_t run = 0; run < counts.runs(); ++run) {
    if (waves.empty() || !fits_with(run)) {
      waves.push_back({run, run});
      std::ranges::fill(in, 0);
      std::ranges::fill(out, 0);
      fits_with(run);
    }
    waves.back().end = run + 1;
  }
  return waves;
}

namespace {

int64_t runs_of(int64_t rows, int64_t run_rows) { return (rows + run_rows - 1) / run_rows; }

// The ascending places where the mask is set: `count` of them. ATen's own function would let the host wait
// for their number.
at::Tensor places_of(const at::Tensor& mask_P, int64_t count) {
  if (mask_P.is_cpu()) return mask_P.nonzero().view(-1);
  const auto [sorted, place_P] =
      at::sort(mask_P.to(at::kChar), /*stable=*/true, /*dim=*/0, /*descending=*/true);
  return place_P.narrow(0, 0, count);
}

int64_t sum_over(const RunCounts& counts, base::Interval runs, int from, int to) {
  int64_t sum = 0;
  for (int64_t run = runs.begin; run < runs.end; ++run) sum += counts.at(run, from, to);
  return sum;
}

std::vector<int64_t> to_host(const at::Tensor& values) {
  const at::Tensor host = values.cpu();
  return {host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel()};
}

}  // namespace

TokenDispatcher::TokenDispatcher(LaneChannel& channel, const DispatchedRows& rows, const ExpertLanes& place,
                                 int64_t experts, std::span<const int> seats, const Routes& own,
                                 const model::DispatchChunkRows& bound, Counts known)
    : channel_(channel),
      place_(place),
      members_(rows.members),
      experts_(experts),
      seats_(seats.begin(), seats.end()),
      run_rows_(bound.run),
      rows_(rows.rows),
      first_run_{0} {
  SLUICE_ASSERT(std::ssize(rows.rows) == lanes() && own.id_TK.size(0) == rows.rows[place.lane],
                base::text(own.id_TK.size(0), " rows travel in a group of ", rows.rows.size()));
  for (const int64_t of_lane : rows_) first_run_.push_back(first_run_.back() + runs_of(of_lane, run_rows_));
  learn_routes(rows, own);
  std::vector<int64_t> by_slot;
  id_PK_ = seats_of_ids(known, by_slot);
  const at::Tensor visits_PL = visits_by_lane();
  counts_ =
      known != nullptr
          ? std::move(known)
          : std::make_shared<const DispatchCounts>(read_counts(visits_PL, own.id_TK, std::move(by_slot)));
  busiest_ = load_of_busiest();
  waves_ = dispatch_chunks_of(counts_->rows, bound.most);
  find_ways(visits_PL);
}

at::Tensor TokenDispatcher::rows_of(const at::Tensor& all_PX, int lane) const {
  const auto at = static_cast<size_t>(lane);
  return all_PX.narrow(0, first_run_[at] * run_rows_, rows_[at]);
}

void TokenDispatcher::learn_routes(const DispatchedRows& rows, const Routes& own) {
  const std::vector<int64_t> shape{runs() * run_rows_, own.id_TK.size(1)};
  id_PK_ = at::full(shape, experts_, own.id_TK.options());
  weight_PK_ = at::empty(shape, own.weight_TK.options());
  const Routes sent{own.id_TK.contiguous(), own.weight_TK.contiguous()};
  rows_of(id_PK_, place_.lane).copy_(sent.id_TK);
  rows_of(weight_PK_, place_.lane).copy_(sent.weight_TK);
  Parcels parcels;
  for (int lane = 0; lane < lanes(); ++lane) {
    if (lane == place_.lane) continue;
    const int member = rows.members[static_cast<size_t>(lane)];
    for (const auto& [ours, all] : {std::pair(sent.id_TK, id_PK_), {sent.weight_TK, weight_PK_}}) {
      parcels.push_back({ours, member, ParcelWay::kTo});
      parcels.push_back({rows_of(all, lane), member, ParcelWay::kFrom});
    }
  }
  channel_.exchange(parcels).wait(own.id_TK.device());
}

// The expert's only slot, or one dealt out alike on all lanes.
at::Tensor TokenDispatcher::seats_of_ids(const Counts& known, std::vector<int64_t>& by_slot) const {
  if (std::ssize(seats_) > experts_) {
    if (known != nullptr) return dealt_seats(known->by_slot);
    std::vector<int64_t> visits = to_host(ops::counts_of(id_PK_, experts_ + 1));
    visits.pop_back();  // padding
    by_slot = model::assignments_by_slot(visits, seats_, lanes());
    return dealt_seats(by_slot);
  }
  std::vector<int64_t> seat_of(seats_.size() + 1, std::ssize(seats_));
  for (size_t seat = 0; seat < seats_.size(); ++seat)
    seat_of[static_cast<size_t>(seats_[seat])] = static_cast<int64_t>(seat);
  const at::Tensor seat_of_E = ops::to_device(seat_of, id_PK_.device()).to(at::kInt);
  return seat_of_E.index_select(0, id_PK_.view(-1)).view(id_PK_.sizes());
}

// Deals assignments to an expert's several slots: in the order of lanes and rows, the first ones go to the
// first slot.
at::Tensor TokenDispatcher::dealt_seats(const std::vector<int64_t>& by_slot) const {
  const at::Tensor id_V = id_PK_.view(-1);
  const auto [sorted_V, place_V] = at::sort(id_V, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  std::vector<int64_t> order(seats_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int64_t seat) { return seats_[static_cast<size_t>(seat)]; });
  std::vector<int64_t> in_order;
  for (const int64_t seat : order) in_order.push_back(by_slot[static_cast<size_t>(seat)]);
  order.push_back(std::ssize(seats_));  // padding
  in_order.push_back(id_V.numel() - std::accumulate(in_order.begin(), in_order.end(), int64_t{0}));
  const at::Tensor dealt_V =
      at::repeat_interleave(ops::to_device(order, id_V.device()).to(at::kInt),
                            ops::to_device(in_order, id_V.device()), /*dim=*/0, id_V.numel());
  at::Tensor seat_V = at::empty_like(id_V);
  seat_V.index_copy_(0, place_V, dealt_V);
  return seat_V.view(id_PK_.sizes());
}

// How many assignments of each row go to each lane. [P, L]
at::Tensor TokenDispatcher::visits_by_lane() const {
  const at::Tensor lane_PK = id_PK_.div(own_expert_slots(), "floor").to(at::kLong);
  const at::TensorOptions counts = lane_PK.options().dtype(at::kShort);
  return at::zeros({id_PK_.size(0), lanes() + 1}, counts)
      .scatter_add_(1, lane_PK, at::ones({1, 1}, counts).expand(lane_PK.sizes()))
      .narrow(1, 0, lanes());
}

// The host reads all counts at once: for each lane, rows and assignments by run; and this lane's assignments
// by expert.
DispatchCounts TokenDispatcher::read_counts(const at::Tensor& visits_PL, const at::Tensor& own_id_TK,
                                            std::vector<int64_t> by_slot) const {
  const auto by_run = [&](const at::Tensor& of_PL) {
    return of_PL.reshape({runs(), run_rows_, lanes()}).sum(1).view(-1);
  };
  const std::vector<int64_t> all =
      to_host(at::cat({by_run(visits_PL.gt(0)), by_run(visits_PL), ops::counts_of(own_id_TK, experts_)}));
  const RunCounts none(lanes(), runs_of(std::ranges::max(rows_), run_rows_));
  DispatchCounts counts{none, none, {all.end() - experts_, all.end()}, std::move(by_slot)};
  auto next = all.begin();
  for (RunCounts* const of : {&counts.rows, &counts.assignments}) {
    for (int from = 0; from < lanes(); ++from) {
      const auto lane = static_cast<size_t>(from);
      for (int64_t run = 0; run < first_run_[lane + 1] - first_run_[lane]; ++run) {
        for (int to = 0; to < lanes(); ++to) of->at(run, from, to) = *next++;
      }
    }
  }
  return counts;
}

void TokenDispatcher::find_ways(const at::Tensor& visits_PL) {
  const RunCounts& counts = counts_->rows;
  const auto way = [&](int from, int to) {
    Way found{{}, {0}};
    for (const base::Interval& wave : waves_)
      found.begins.push_back(found.begins.back() + sum_over(counts, wave, from, to));
    return found;
  };
  int64_t came = 0;
  for (int lane = 0; lane < lanes(); ++lane) {
    came += coming_.emplace_back(way(lane, place_.lane)).begins.back();
    Way& going = going_.emplace_back(way(place_.lane, lane));
    going.row_R = places_of(rows_of(visits_PL, place_.lane).select(1, lane).gt(0), going.begins.back());
  }
  const at::Tensor row_R = places_of(visits_PL.select(1, place_.lane).gt(0), came);
  int64_t begin = 0;
  for (Way& coming : coming_) {
    coming.row_R = row_R.narrow(0, begin, coming.begins.back());
    begin += coming.begins.back();
  }
}

double TokenDispatcher::load_of_busiest() const {
  const RunCounts& counts = counts_->assignments;
  int64_t total = 0, most = 0;
  for (int to = 0; to < lanes(); ++to) {
    int64_t own = 0;
    for (int from = 0; from < lanes(); ++from) own += sum_over(counts, {0, counts.runs()}, from, to);
    total += own;
    most = std::max(most, own);
  }
  return total > 0 ? static_cast<double>(most * lanes()) / static_cast<double>(total) : 1;
}

int64_t TokenDispatcher::coming_rows(int64_t wave) const {
  int64_t rows = 0;
  for (const Way& way : coming_) rows += way.count(wave);
  return rows;
}

ops::ExpertAssignments TokenDispatcher::ReceivedRows::by_expert(int64_t slots) const {
  ops::ExpertAssignments visits = ops::expert_assignments_of(slot_NK, slots + 1);
  visits.begins.pop_back();
  visits.row_V = visits.row_V.narrow(0, 0, assignments);
  visits.slot_V = visits.slot_V.narrow(0, 0, assignments);
  return visits;
}

TokenDispatcher::ReceivedRows TokenDispatcher::coming_in(int64_t wave) const {
  ReceivedRows coming{.rows = coming_rows(wave), .assignments = 0, .slot_NK = {}, .weight_NK = {}};
  std::vector<at::Tensor> rows;
  for (int lane = 0; lane < lanes(); ++lane) {
    rows.push_back(coming_[static_cast<size_t>(lane)].rows_of(wave));
    coming.assignments +=
        sum_over(counts_->assignments, waves_[static_cast<size_t>(wave)], lane, place_.lane);
  }
  const at::Tensor row_N = at::cat(rows);
  const int64_t slots = own_expert_slots();
  const at::Tensor local_NK = id_PK_.index_select(0, row_N).sub_(place_.lane * slots);
  const at::Tensor elsewhere_NK = (local_NK < 0).logical_or_(local_NK >= slots);
  coming.slot_NK = local_NK.masked_fill(elsewhere_NK, slots);
  coming.weight_NK = weight_PK_.index_select(0, row_N);
  return coming;
}

std::vector<at::Tensor> TokenDispatcher::set_out(int64_t wave, const std::vector<at::Tensor>& rows_TX,
                                                 Parcels& parcels) const {
  std::vector<at::Tensor> came_NX;
  for (const at::Tensor& rows : rows_TX) {
    const at::Tensor& came =
        came_NX.emplace_back(at::empty({coming_rows(wave), rows.size(1)}, rows.options()));
    int64_t at = 0;
    for (int lane = 0; lane < lanes(); ++lane) {
      const int64_t count = coming_[static_cast<size_t>(lane)].count(wave);
      const at::Tensor theirs = came.narrow(0, at, count);
      at += count;
      const at::Tensor sent = rows.index_select(0, going_[static_cast<size_t>(lane)].rows_of(wave));
      if (lane == place_.lane) {
        theirs.copy_(sent);
        continue;
      }
      const int member = members_[static_cast<size_t>(lane)];
      parcels.push_back({sent, member, ParcelWay::kTo});
      parcels.push_back({theirs, member, ParcelWay::kFrom});
    }
  }
  return came_NX;
}

std::vector<std::vector<at::Tensor>> TokenDispatcher::send_home(int64_t wave,
                                                                const std::vector<at::Tensor>& made_NX,
                                                                const std::vector<at::Tensor>& sums_TX,
                                                                Parcels& parcels) const {
  std::vector<std::vector<at::Tensor>> home(static_cast<size_t>(lanes()));
  int64_t at = 0;
  for (int lane = 0; lane < lanes(); ++lane) {
    const int64_t count = coming_[static_cast<size_t>(lane)].count(wave);
    const int member = members_[static_cast<size_t>(lane)];
    for (size_t i = 0; i < sums_TX.size(); ++i) {
      const at::Tensor made = made_NX[i].narrow(0, at, count);
      if (lane == place_.lane) {
        home[static_cast<size_t>(lane)].push_back(made);
        continue;
      }
      const at::Tensor& came = home[static_cast<size_t>(lane)].emplace_back(
          at::empty({going_[static_cast<size_t>(lane)].count(wave), made.size(1)}, made.options()));
      parcels.push_back({made, member, ParcelWay::kTo});
      parcels.push_back({came, member, ParcelWay::kFrom});
    }
    at += count;
  }
  return home;
}

void TokenDispatcher::add_home(int64_t wave, const std::vector<std::vector<at::Tensor>>& came,
                               const std::vector<at::Tensor>& sums_TX) const {
  for (size_t lane = 0; lane < came.size(); ++lane) {
    for (size_t i = 0; i < sums_TX.size(); ++i)
      ops::add_to_rows(sums_TX[i], going_[lane].rows_of(wave), came[lane][i]);
  }
}

void TokenDispatcher::dispatch_and_combine(const std::vector<at::Tensor>& rows_TX,
                                           const std::vector<at::Tensor>& sums_TX,
                                           const Compute& compute) const {
  const c10::Device device = rows_TX.front().device();
  const auto depart = [&](const Parcels& parcels) {
    return parcels.empty() ? std::nullopt : std::optional<Passing>(channel_.exchange(parcels));
  };
  std::vector<at::Tensor> coming, made;
  for (int64_t wave = -1; wave <= dispatch_chunks(); ++wave) {
    Parcels parcels;
    std::vector<at::Tensor> next;
    std::vector<std::vector<at::Tensor>> home;
    if (wave + 1 < dispatch_chunks()) next = set_out(wave + 1, rows_TX, parcels);
    if (wave >= 1) home = send_home(wave - 1, made, sums_TX, parcels);
    std::optional<Passing> passing = depart(parcels);
    if (wave >= 0 && wave < dispatch_chunks()) made = compute(coming, coming_in(wave));
    if (passing) passing->wait(device);
    if (wave >= 1) add_home(wave - 1, home, sums_TX);
    coming = std::move(next);
  }
}

}  // namespace sluice::layers
