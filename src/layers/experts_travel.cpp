#include "layers/experts_travel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::layers {

using ParcelWay = LaneChannel::Parcel::Way;

std::vector<base::Interval> waves_of(const RunCounts& counts, int64_t most_rows) {
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

ExpertsTravel::ExpertsTravel(LaneChannel& channel, const TravellingRows& rows, const ExpertLanes& place,
                             int64_t experts, const Routes& own, const model::WaveRows& bound)
    : channel_(channel), place_(place), members_(rows.members), experts_(experts) {
  SLUICE_ASSERT(std::ssize(rows.rows) == lanes() && own.id_TK.size(0) == rows.rows[place.lane],
                base::text(own.id_TK.size(0), " rows travel in a group of ", rows.rows.size()));
  learn_routes(rows, own);
  std::vector<at::Tensor> visits_TL;  // by lane: whether a row visits a lane
  const RunCounts counts = count_runs(rows, bound.run, visits_TL);
  waves_ = waves_of(counts, bound.most);
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

void ExpertsTravel::learn_routes(const TravellingRows& rows, const Routes& own) {
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

// The host learns all counts at once: of each lane's rows run by run, and of all its visits.
RunCounts ExpertsTravel::count_runs(const TravellingRows& rows, int64_t run_rows,
                                    std::vector<at::Tensor>& visits_TL) {
  const auto runs_of = [&](int64_t own) { return (own + run_rows - 1) / run_rows; };
  std::vector<at::Tensor> counts_RL;
  for (const Routes& routes : routes_) {
    const int64_t own = routes.id_TK.size(0), runs = runs_of(own);
    const at::Tensor lane_TK = routes.id_TK.div(own_experts(), "floor").to(at::kLong);
    at::Tensor visits = at::zeros({runs * run_rows, lanes()}, lane_TK.options());
    visits.narrow(0, 0, own).scatter_(1, lane_TK, 1);
    counts_RL.push_back(visits.view({runs, run_rows, lanes()}).sum(1));
    counts_RL.push_back(at::bincount(lane_TK.reshape(-1), {}, lanes()).unsqueeze(0));
    visits_TL.push_back(visits.narrow(0, 0, own));
  }
  const at::Tensor all = at::cat(counts_RL).cpu().contiguous();
  const auto* next = all.const_data_ptr<int64_t>();
  RunCounts counts(lanes(), runs_of(std::ranges::max(rows.rows)));
  std::vector<int64_t> visits(static_cast<size_t>(lanes()), 0);
  for (int from = 0; from < lanes(); ++from) {
    for (int64_t run = 0; run < runs_of(rows.rows[static_cast<size_t>(from)]); ++run) {
      for (int to = 0; to < lanes(); ++to) counts.at(run, from, to) = *next++;
    }
    for (int64_t& to : visits) to += *next++;
  }
  const auto total = std::accumulate(visits.begin(), visits.end(), int64_t{0});
  if (total > 0)
    busiest_ = static_cast<double>(std::ranges::max(visits) * lanes()) / static_cast<double>(total);
  return counts;
}

int64_t ExpertsTravel::coming_rows(int64_t wave) const {
  int64_t rows = 0;
  for (const Way& way : coming_) rows += way.count(wave);
  return rows;
}

// Visits of other lanes' experts are sorted behind this one's.
ExpertsTravel::Coming ExpertsTravel::coming_in(int64_t wave) const {
  std::vector<at::Tensor> ids, weights;
  for (int lane = 0; lane < lanes(); ++lane) {
    const at::Tensor row_N = coming_[static_cast<size_t>(lane)].rows_of(wave);
    ids.push_back(routes_[static_cast<size_t>(lane)].id_TK.index_select(0, row_N));
    weights.push_back(routes_[static_cast<size_t>(lane)].weight_TK.index_select(0, row_N));
  }
  const at::Tensor local_NK = at::cat(ids).sub_(place_.lane * own_experts());
  const at::Tensor elsewhere_NK = (local_NK < 0).logical_or_(local_NK >= own_experts());
  Coming coming{.rows = coming_rows(wave),
                .visits = ops::visits_of(local_NK.masked_fill(elsewhere_NK, own_experts()).contiguous(),
                                         own_experts() + 1),
                .weight_NK = at::cat(weights)};
  coming.visits.begins.pop_back();
  const int64_t own = coming.visits.begins.back();
  coming.visits.row_V = coming.visits.row_V.narrow(0, 0, own);
  coming.visits.slot_V = coming.visits.slot_V.narrow(0, 0, own);
  return coming;
}

std::vector<at::Tensor> ExpertsTravel::set_out(int64_t wave, const std::vector<at::Tensor>& rows_TX,
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

std::vector<std::vector<at::Tensor>> ExpertsTravel::send_home(int64_t wave,
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

void ExpertsTravel::add_home(int64_t wave, const std::vector<std::vector<at::Tensor>>& came,
                             const std::vector<at::Tensor>& sums_TX) const {
  for (size_t lane = 0; lane < came.size(); ++lane) {
    for (size_t i = 0; i < sums_TX.size(); ++i)
      ops::add_to_rows(sums_TX[i], going_[lane].rows_of(wave), came[lane][i]);
  }
}

void ExpertsTravel::run(const std::vector<at::Tensor>& rows_TX, const std::vector<at::Tensor>& sums_TX,
                        const Compute& compute) const {
  const c10::Device device = rows_TX.front().device();
  const auto depart = [&](const Parcels& parcels) {
    return parcels.empty() ? std::nullopt : std::optional<Passing>(channel_.exchange(parcels));
  };
  std::vector<at::Tensor> coming, made;
  for (int64_t wave = -1; wave <= waves(); ++wave) {
    Parcels parcels;
    std::vector<at::Tensor> next;
    std::vector<std::vector<at::Tensor>> home;
    if (wave + 1 < waves()) next = set_out(wave + 1, rows_TX, parcels);
    if (wave >= 1) home = send_home(wave - 1, made, sums_TX, parcels);
    std::optional<Passing> passing = depart(parcels);
    if (wave >= 0 && wave < waves()) made = compute(coming, coming_in(wave));
    if (passing) passing->wait(device);
    if (wave >= 1) add_home(wave - 1, home, sums_TX);
    coming = std::move(next);
  }
}

}  // namespace sluice::layers
