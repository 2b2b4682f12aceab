// Expert parallelism: rows travel to the lanes of the experts that they are assigned to, and results travel
// back.
//
// All lanes of an expert group first exchange all token-to-expert assignments, a few bytes each. Rows then
// travel in dispatch chunks (`wave` in code). The rows that any lane sends or receives in a chunk stay within
// a bound, whatever the routing. While a chunk is computed, the next one's rows arrive and the previous one's
// sums return (the idea of COMET, Zhang et al., 2025, per chunk). A row goes to a lane once, however many of
// its experts are there. Its results are summed there in the order of experts, and at home in the order of
// lanes. No row is dropped or padded.
//
// The host decides how much travels, so it reads the counts of all assignments, in one copy. A backward takes
// the counts of its forward and reads nothing.
//
// Row names: T a lane's own rows, K experts of a row, N rows that a chunk brings. L lanes of the group. P
// rows of all lanes, each lane's padded to whole runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/interval.h"
#include "layers/context.h"
#include "layers/lane_channel.h"
#include "layers/row_layout.h"
#include "model/dispatch_chunk_rows.h"
#include "ops/expert_assignments.h"

namespace sluice::layers {

// Token-to-expert assignments: int32 experts or, later, expert slots (model/expert_slots.h), and their
// weights. [T, K]
struct Routes {
  at::Tensor id_TK, weight_TK;
};

// How many rows, or assignments, of each run of a lane's rows go to each lane.
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

// How a group's rows are dispatched, as the host knows it.
struct DispatchCounts {
  RunCounts rows, assignments;
  std::vector<int64_t> by_expert;  // assignments of this lane's rows
  std::vector<int64_t> by_slot;    // of all rows, by expert slot; empty if each expert has one
};

// Joins consecutive runs to as few dispatch chunks as possible in which no lane sends or receives more than
// `most_rows`. A chunk of a single run may exceed this bound.
std::vector<base::Interval> dispatch_chunks_of(const RunCounts& counts, int64_t most_rows);

class TokenDispatcher {
 public:
  using Counts = std::shared_ptr<const DispatchCounts>;
  // `experts`: number of experts in all. `seats`: the expert in each slot, lane by lane. `own`: assignments
  // of this lane's rows, possibly none. `known`: counts() of another dispatch of the same rows to the same
  // slots; null: not known, which waits for a GPU. Collective: exchanges assignments.
  TokenDispatcher(LaneChannel& channel, const DispatchedRows& rows, const ExpertLanes& place, int64_t experts,
                  std::span<const int> seats, const Routes& own, const model::DispatchChunkRows& bound,
                  Counts known = nullptr);

  // Received rows: their assignments to this lane's expert slots, numbered from 0, and their weights.
  struct ReceivedRows {
    int64_t rows = 0, assignments = 0;  // assignments to other lanes' experts are not counted
    at::Tensor slot_NK;                 // int32; the number of slots for other lanes' experts
    at::Tensor weight_NK;
    // For products expert by expert. Waits for a GPU.
    ops::ExpertAssignments by_expert(int64_t slots) const;
  };
  // Computes the rows to send back from those received, row by row in each tensor.
  using Compute = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& came_NX,
                                                        const ReceivedRows& coming)>;
  // Sends `rows_TX` through all experts that the rows are assigned to and adds the results to `sums_TX`.
  // Results travel in the types and widths of `sums_TX`.
  void dispatch_and_combine(const std::vector<at::Tensor>& rows_TX, const std::vector<at::Tensor>& sums_TX,
                            const Compute& compute) const;

  // Assignments of the busiest lane over the mean lane's; 1 if no lane has rows.
  double load_imbalance() const { return busiest_; }
  int64_t dispatch_chunks() const { return std::ssize(waves_); }
  // Assignments of this lane's rows, by expert.
  const std::vector<int64_t>& assignments() const { return counts_->by_expert; }
  const Counts& counts() const { return counts_; }
  int64_t own_expert_slots() const { return std::ssize(seats_) / lanes(); }

 private:
  using Parcels = std::vector<LaneChannel::Parcel>;
  // Rows from one lane to another: their ascending numbers, and where each chunk begins in these.
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
  int64_t runs() const { return first_run_.back(); }
  // A lane's rows among those of all lanes.
  at::Tensor rows_of(const at::Tensor& all_PX, int lane) const;
  void learn_routes(const DispatchedRows& rows, const Routes& own);
  // Returns all assignments' expert slots, and if the host counted them for this, by slot.
  at::Tensor seats_of_ids(const Counts& known, std::vector<int64_t>& by_slot) const;
  at::Tensor dealt_seats(const std::vector<int64_t>& by_slot) const;
  at::Tensor visits_by_lane() const;
  DispatchCounts read_counts(const at::Tensor& visits_PL, const at::Tensor& own_id_TK,
                             std::vector<int64_t> by_slot) const;
  void find_ways(const at::Tensor& visits_PL);
  double load_of_busiest() const;
  int64_t coming_rows(int64_t wave) const;
  ReceivedRows coming_in(int64_t wave) const;
  std::vector<at::Tensor> set_out(int64_t wave, const std::vector<at::Tensor>& rows_TX,
                                  Parcels& parcels) const;
  // By lane, then by tensor.
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
  int64_t run_rows_;
  std::vector<int64_t> rows_, first_run_;  // by lane; a lane's rows begin at first_run_ · run_rows_
  at::Tensor id_PK_, weight_PK_;           // experts, then expert slots; padding goes to a slot behind all
  Counts counts_;
  double busiest_ = 1;
  std::vector<base::Interval> waves_;
  std::vector<Way> coming_, going_;  // by the other lane, this one included
};

}  // namespace sluice::layers
