#include "layers/token_dispatcher.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "model/expert_slots.h"

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

TokenDispatcher::TokenDispatcher(LaneChannel& channel, const DispatchedRows& rows, const ExpertLanes& place,
                                 int64_t experts, std::span<const int> seats, const Routes& own,
                                 const model::DispatchChunkRows& bound)
    : channel_(channel),
      place_(place),
      members_(rows.members),
      experts_(experts),
      seats_(seats.begin(), seats.end()) {
  SLUICE_ASSERT(std::ssize(rows.rows) == lanes() && own.id_TK.size(0) == rows.rows[place.lane],
                base::text(own.id_TK.size(0), " rows travel in a group of ", rows.rows.size()));
  learn_routes(rows, own);
  take_seats();
  std::vector<at::Tensor> visits_TL;  // by lane: which rows go to which lane
  const RunCounts counts = count_runs(rows, bound.run, own.id_TK, visits_TL);
  waves_ = dispatch_chunks_of(counts, bound.most);
  const auto way = [&](int from, int to) {
    Way found{visits_TL[static_cast<size_t>(from)].select(1, to).nonzero().view(-1), {0}};
    for (const base::Interval wave : waves_) {
      int64_t sum = found.begins.back();
      for (int64_t run = wave.begin; run < wave.end; ++run) sum += counts.at(run, from, to);
      found.begins.push_back(sum);
    }
    return found;
  };
  for (int lane = 0; lane < lanes(); ++lane) {
    coming_.push_back(way(lane, place_.lane));
    going_.push_back(way(place_.lane, lane));
  }
}

void TokenDispatcher::learn_routes(const DispatchedRows& rows, const Routes& own) {
  Parcels parcels;
  const Routes sent{own.id_TK.contiguous(), own.weight_TK.contiguous()};
  for (int lane = 0; lane < lanes(); ++lane) {
    const int member = members_[static_cast<size_t>(lane)];
    if (lane == place_.lane) {
      routes_.push_back(sent);
      continue;
    }
    const std::vector<int64_t> shape{rows.rows[static_cast<size_t>(lane)], own.id_TK.size(1)};
    const Routes& theirs = routes_.emplace_back(at::empty(shape, own.id_TK.options()),
                                                at::empty(shape, own.weight_TK.options()));
    for (const auto& [ours, other] :
         {std::pair(sent.id_TK, theirs.id_TK), {sent.weight_TK, theirs.weight_TK}}) {
      parcels.push_back({ours, member, ParcelWay::kTo});
      parcels.push_back({other, member, ParcelWay::kFrom});
    }
  }
  channel_.exchange(parcels).wait(own.id_TK.device());
}

// Assigns an expert slot to each assignment: the expert's only one, or one dealt out alike on all lanes.
void TokenDispatcher::take_seats() {
  const at::TensorOptions ids = routes_.front().id_TK.options();
  if (std::ssize(seats_) > experts_) {
    std::vector<at::Tensor> dealt = dealt_seats();
    for (size_t lane = 0; lane < dealt.size(); ++lane) routes_[lane].id_TK = std::move(dealt[lane]);
    return;
  }
  std::vector<int> seat_of(seats_.size());
  for (size_t seat = 0; seat < seats_.size(); ++seat)
    seat_of[static_cast<size_t>(seats_[seat])] = static_cast<int>(seat);
  const at::Tensor seat_of_E = at::tensor(seat_of, ids);
  for (Routes& routes : routes_) {
    const at::Tensor& id_TK = routes.id_TK;
    routes.id_TK = seat_of_E.index_select(0, id_TK.view(-1)).view(id_TK.sizes());
  }
}

// Deals assignments to an expert's several slots: in the order of lanes and rows, the first ones go to the
// first slot. The host reads counts for this.
std::vector<at::Tensor> TokenDispatcher::dealt_seats() const {
  std::vector<at::Tensor> ids;
  std::vector<int64_t> of_lane;
  for (const Routes& routes : routes_) {
    ids.push_back(routes.id_TK.view(-1));
    of_lane.push_back(routes.id_TK.numel());
  }
  const at::Tensor id_V = at::cat(ids);
  const ops::ExpertAssignments by_expert = ops::expert_assignments_of(id_V.view({-1, 1}), experts_);
  std::vector<int64_t> visits(by_expert.begins.begin() + 1, by_expert.begins.end());
  std::adjacent_difference(visits.begin(), visits.end(), visits.begin());
  const std::vector<int64_t> dealt = model::assignments_by_slot(visits, seats_, lanes());
  std::vector<int> order(seats_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int seat) { return seats_[static_cast<size_t>(seat)]; });
  std::vector<int64_t> in_order;
  for (const int seat : order) in_order.push_back(dealt[static_cast<size_t>(seat)]);
  const at::Tensor count_N = at::tensor(in_order, id_V.options().dtype(at::kLong));
  const at::Tensor sorted_V =
      at::repeat_interleave(at::tensor(order, id_V.options()), count_N, /*dim=*/0, id_V.numel());
  at::Tensor seat_V = at::empty_like(id_V);
  seat_V.index_copy_(0, by_expert.slot_V, sorted_V);
  std::vector<at::Tensor> seats = seat_V.split_with_sizes(of_lane);
  for (size_t lane = 0; lane < seats.size(); ++lane)
    seats[lane] = seats[lane].view(routes_[lane].id_TK.sizes());
  return seats;
}

// The host reads all counts at once: for each lane, rows by run and all assignments; and this lane's
// assignments by expert.
RunCounts TokenDispatcher::count_runs(const DispatchedRows& rows, int64_t run_rows,
                                      const at::Tensor& own_id_TK, std::vector<at::Tensor>& visits_TL) {
  const auto runs_of = [&](int64_t own) { return (own + run_rows - 1) / run_rows; };
  std::vector<at::Tensor> counts_RL;
  for (const Routes& routes : routes_) {
    const int64_t own = routes.id_TK.size(0), runs = runs_of(own);
    const at::Tensor lane_TK = routes.id_TK.div(own_expert_slots(), "floor").to(at::kLong);
    at::Tensor visits = at::zeros({runs * run_rows, lanes()}, lane_TK.options());
    visits.narrow(0, 0, own).scatter_(1, lane_TK, 1);
    counts_RL.push_back(visits.view({runs, run_rows, lanes()}).sum(1));
    counts_RL.push_back(at::bincount(lane_TK.reshape(-1), {}, lanes()).unsqueeze(0));
    visits_TL.push_back(visits.narrow(0, 0, own));
  }
  for (at::Tensor& counts : counts_RL) counts = counts.reshape(-1);
  counts_RL.push_back(at::bincount(own_id_TK.view(-1), {}, experts_));
  const at::Tensor all = at::cat(counts_RL).cpu();
  const auto* next = all.const_data_ptr<int64_t>();
  RunCounts counts(lanes(), runs_of(std::ranges::max(rows.rows)));
  std::vector<int64_t> visits(static_cast<size_t>(lanes()), 0);
  for (int from = 0; from < lanes(); ++from) {
    for (int64_t run = 0; run < runs_of(rows.rows[static_cast<size_t>(from)]); ++run) {
      for (int to = 0; to < lanes(); ++to) counts.at(run, from, to) = *next++;
    }
    for (int64_t& to : visits) to += *next++;
  }
  visits_.assign(next, next + experts_);
  const auto total = std::accumulate(visits.begin(), visits.end(), int64_t{0});
  if (total > 0)
    busiest_ = static_cast<double>(std::ranges::max(visits) * lanes()) / static_cast<double>(total);
  return counts;
}

int64_t TokenDispatcher::coming_rows(int64_t wave) const {
  int64_t rows = 0;
  for (const Way& way : coming_) rows += way.count(wave);
  return rows;
}

// Assignments to other lanes' experts are sorted behind this lane's.
TokenDispatcher::ReceivedRows TokenDispatcher::coming_in(int64_t wave) const {
  std::vector<at::Tensor> ids, weights;
  for (int lane = 0; lane < lanes(); ++lane) {
    const at::Tensor row_N = coming_[static_cast<size_t>(lane)].rows_of(wave);
    ids.push_back(routes_[static_cast<size_t>(lane)].id_TK.index_select(0, row_N));
    weights.push_back(routes_[static_cast<size_t>(lane)].weight_TK.index_select(0, row_N));
  }
  const at::Tensor local_NK = at::cat(ids).sub_(place_.lane * own_expert_slots());
  const at::Tensor elsewhere_NK = (local_NK < 0).logical_or_(local_NK >= own_expert_slots());
  ReceivedRows coming{
      .rows = coming_rows(wave),
      .assignments = ops::expert_assignments_of(
          local_NK.masked_fill(elsewhere_NK, own_expert_slots()).contiguous(), own_expert_slots() + 1),
      .weight_NK = at::cat(weights)};
  coming.assignments.begins.pop_back();
  const int64_t own = coming.assignments.begins.back();
  coming.assignments.row_V = coming.assignments.row_V.narrow(0, 0, own);
  coming.assignments.slot_V = coming.assignments.slot_V.narrow(0, 0, own);
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
