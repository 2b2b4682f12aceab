// Rows on their way to the experts that they visit and back, where lanes divide a layer's experts between
// them.
//
// All lanes of an expert group first learn all routes, a few bytes a visit. Then rows travel in waves: as
// many of every lane's rows as keep all that comes to a lane, and all that one sends, within a bound,
// whatever the routing. While a wave is computed the rows of the next one come and the sums of the one before
// go home (the idea of COMET, Zhang et al., 2025, at the level of waves). A row goes to a lane once, however
// many of its experts it visits; what those give it is summed there, in the order of experts, and at home in
// that of lanes. No row is dropped or padded.
//
// Row names: T a lane's own rows, K experts of a row, N rows that come in a wave. L lanes of the group.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/interval.h"
#include "layers/context.h"
#include "layers/lane_channel.h"
#include "layers/row_layout.h"
#include "model/dispatch_chunk_rows.h"
#include "ops/expert_assignments.h"

namespace sluice::layers {

// Which experts rows visit, or of these which seats (model/expert_slots.h), int32, and how much each counts.
// [T, K]
struct Routes {
  at::Tensor id_TK, weight_TK;
};

// How many rows of each run of a lane's rows visit which lane.
class RunCounts {
 public:
  RunCounts(int lanes, int64_t runs)
      : lanes_(lanes), runs_(runs), counts_(static_cast<size_t>(runs * lanes * lanes), 0) {}
  int lanes() const { return lanes_; }
  int64_t runs() const { return runs_; }
  int64_t& at(int64_t run, int from, int to) {
    return counts_[static_cast<size_t>((run * lanes_ + from) * lanes_ + to)];
  }
  int64_t at(int64_t run, int from, int to) const {
    return counts_[static_cast<size_t>((run * lanes_ + from) * lanes_ + to)];
  }

 private:
  int lanes_;
  int64_t runs_;
  std::vector<int64_t> counts_;
};

// Consecutive runs as few waves as may be in which no lane takes in or sends more than
// `max_num_batched_tokens`, but for waves of one run.
std::vector<base::Interval> dispatch_chunks_of(const RunCounts& counts, int64_t most_rows);

class TokenDispatcher {
 public:
  // Of so many experts in all; `seats`: their experts, lane by lane. `own` are the routes of this lane's
  // rows, of which there may be none. Exchanges routes.
  TokenDispatcher(LaneChannel& channel, const DispatchedRows& rows, const ExpertLanes& place, int64_t experts,
                  std::span<const int> seats, const Routes& own, const model::DispatchChunkRows& bound);

  // Rows that came: their visits of this lane's seats, numbered from 0, and their weights.
  struct ReceivedRows {
    int64_t rows = 0;
    ops::ExpertAssignments assignments;
    at::Tensor weight_NK;
  };
  // Takes what came, row by row in each tensor, to what goes back.
  using Compute = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& came_NX,
                                                        const ReceivedRows& coming)>;
  // Sends the rows of `rows_TX` through all experts that they visit and adds what comes back to those of
  // `sums_TX`, in whose types and widths it comes.
  void dispatch_and_combine(const std::vector<at::Tensor>& rows_TX, const std::vector<at::Tensor>& sums_TX,
                            const Compute& compute) const;

  // Visits of the busiest lane over those of the mean one; 1 where nobody has rows.
  double load_imbalance() const { return busiest_; }
  int64_t dispatch_chunks() const { return std::ssize(waves_); }
  // By expert, of this lane's rows.
  const std::vector<int64_t>& assignments() const { return visits_; }
  int64_t own_expert_slots() const { return std::ssize(seats_) / lanes(); }

 private:
  using Parcels = std::vector<LaneChannel::Parcel>;
  // What one lane sends another: which of its rows, ascending, and where each wave's begin in these.
  struct Way {
    at::Tensor row_R;
    std::vector<int64_t> begins;
    at::Tensor rows_of(int64_t wave) const {
      return row_R.narrow(0, begins[static_cast<size_t>(wave)], count(wave));
    }
    int64_t count(int64_t wave) const {
      const auto at = static_cast<size_t>(wave);
      return begins[at + 1] - begins[at];
    }
  };

  int lanes() const { return place_.lanes; }
  void learn_routes(const DispatchedRows& rows, const Routes& own);
  void take_seats();
  std::vector<at::Tensor> dealt_seats() const;
  RunCounts count_runs(const DispatchedRows& rows, int64_t run_rows, const at::Tensor& own_id_TK,
                       std::vector<at::Tensor>& visits_TL);
  int64_t coming_rows(int64_t wave) const;
  ReceivedRows coming_in(int64_t wave) const;
  std::vector<at::Tensor> set_out(int64_t wave, const std::vector<at::Tensor>& rows_TX,
                                  Parcels& parcels) const;
  // By lane, then tensor.
  std::vector<std::vector<at::Tensor>> send_home(int64_t wave, const std::vector<at::Tensor>& made_NX,
                                                 const std::vector<at::Tensor>& sums_TX,
                                                 Parcels& parcels) const;
  void add_home(int64_t wave, const std::vector<std::vector<at::Tensor>>& came,
                const std::vector<at::Tensor>& sums_TX) const;

  LaneChannel& channel_;
  ExpertLanes place_;
  std::vector<int> members_;
  int64_t experts_;
  std::vector<int> seats_;
  std::vector<int64_t> visits_;
  double busiest_ = 1;
  std::vector<Routes> routes_;  // by lane; of seats, once these are taken
  std::vector<base::Interval> waves_;
  std::vector<Way> coming_, going_;  // by the other lane, this one among them
};

}  // namespace sluice::layers
