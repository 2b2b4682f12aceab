// The recurrence of schedule/pipeline_schedule.h on flat arrays that are reused from call
// to call, fast enough for searches. It records the lanes' ends, and on request every
// cell.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/never.h"
#include "schedule/event_heap.h"
#include "schedule/flow_bound.h"
#include "schedule/micro_batch_table.h"
#include "schedule/one_lane.h"

namespace sluice::schedule {

// A workspace; one thread at a time. Deterministic.
class Recurrence {
 public:
  // The end of the last cell of the micro-batches `order`, in the order of injection, on a pipeline of
  // `lanes` lanes with this credit each. Returns base::kNever if the end is above `limit_ns`, and does so as
  // soon as a stage cannot end by then. O(cells · log lanes), or O(micro-batches) with one stage. REQUIRES:
  // the micro-batches lie on these lanes and do not cross. With several stages no micro-batch has more tokens
  // than the credit; one stage ignores credit.
  int64_t makespan_ns(const MicroBatchTable& table, std::span<const int> order, int lanes,
                      int64_t credit_tokens, int64_t limit_ns = base::kNever - 1);

  // Ends by lane, from the last call that did not return base::kNever. With several stages it is the common
  // end of all lanes that micro-batches tie to the lane, directly or through others.
  const std::vector<int64_t>& ends_ns() const { return ends_ns_; }

  // Schedules all rows of a table, in this order, with every cell. REQUIRES: as makespan_ns.
  PipelineSchedule schedule(const MicroBatchTable& table, int lanes, int64_t credit_tokens);

 private:
  using Event = ScheduleEvent;
  using Kind = Event::Kind;
  // One lane of one stage. Forwards and backwards run in the order of injection, so counts tell the next one.
  struct Station {
    int stage = 0, lane = 0;
    bool busy = false;
    bool awake = false;
    int forwards_ready = 0, forwards_started = 0;
    int backwards_ready = 0, backwards_started = 0;
    int weights_ready = 0, weights_started = 0;  // counts in weights_
    size_t rounds_cells = 0;                     // cells of its stage in rounds_ that it has passed
    int64_t remaining_ns = 0;                    // total of cells not yet started
    // Forwards and input gradients not yet started, and the last gradient's way from here to the lowest stage
    // with a backward: a bound on the rest of the makespan until the last of them starts.
    int64_t path_ns = 0;
    int64_t stream_free_ns[2] = {0, 0};   // activations, gradients
    int64_t last_arrival_ns[2] = {0, 0};  // arrival of the last transfer from here
  };
  struct Choice {
    Kind kind = Kind::kForward;
    int unit = -1;  // -1: no cell can start
  };
  // A transfer that waits for its streams, from `stage` up (forward) or down.
  struct Waiting {
    int64_t ready_ns = 0;
    int unit = 0;
    int stage = 0;
    Kind kind = Kind::kUp;
    bool operator<(const Waiting& other) const {
      return ready_ns != other.ready_ns ? ready_ns < other.ready_ns : unit < other.unit;
    }
  };
  // A micro-batch, by its position in the order.
  struct Unit {
    const MicroBatchTable::Cells* cells = nullptr;
    int first_lane = 0;
    int lanes = 1;
    bool fused = false;
    bool last = true;  // last on its lanes, and in the last round of tied lanes
    int first_backward_stage = 0;
    int unfinished_stages = 0;
    int64_t tokens = 0;
    int round = 0;  // if lanes are tied
  };

  void read(const MicroBatchTable& table, std::span<const int> order, int lanes, int64_t credit_tokens);
  void list_lanes();
  void add_way_down(int lane);
  int64_t pass_one_stage();
  int64_t run();
  void run_lanes(int first_lane, int end_lane);
  MicroBatchTable find_rounds(int first_lane, int end_lane);
  const Unit& at(int micro_batch) const { return micro_batches_[static_cast<size_t>(micro_batch)]; }
  std::span<Station> stations_of(int stage, int micro_batch) {
    return {stations_.data() + stage * lanes_ + at(micro_batch).first_lane,
            static_cast<size_t>(at(micro_batch).lanes)};
  }
  std::span<const Station> stations_of(int stage, int micro_batch) const {
    return {stations_.data() + stage * lanes_ + at(micro_batch).first_lane,
            static_cast<size_t>(at(micro_batch).lanes)};
  }
  // The micro-batch of a lane with `before` micro-batches before it; and the lane's number of micro-batches.
  int micro_batch_of(int lane, int before) const {
    return lane_micro_batches_[static_cast<size_t>(lane_begin_[static_cast<size_t>(lane)] + before)];
  }
  int micro_batches_of(int lane) const {
    return lane_begin_[static_cast<size_t>(lane) + 1] - lane_begin_[static_cast<size_t>(lane)];
  }
  // By station: the micro-batches whose deferred weight gradients became ready, in that order.
  int& weight(const Station& station, int index) {
    const int lane_begin = lane_begin_[static_cast<size_t>(station.lane)];
    return weights_[static_cast<size_t>(station.stage) * lane_micro_batches_.size() +
                    static_cast<size_t>(lane_begin + index)];
  }
  // Whether the last stage sends no gradient, as it alone has backwards or none has.
  bool turns_alone(int micro_batch) const { return at(micro_batch).first_backward_stage >= stages_ - 1; }
  bool fused(int stage, int micro_batch) const {
    return turns_alone(micro_batch) || at(micro_batch).fused ||
           (stage == at(micro_batch).first_backward_stage && at(micro_batch).last);
  }
  bool admissible(int micro_batch) const;
  bool credit_waits_for(int micro_batch) const;
  Choice choose(Station& station) { return tied_run_ ? choose_of_rounds(station) : choose_of_lane(station); }
  Choice choose_of_lane(const Station& station);
  Choice choose_of_rounds(Station& station);
  void try_start(Station& station);
  void start(int stage, const Choice& choice);
  void push(int64_t time_ns, Kind kind, int stage, int micro_batch);
  void apply(const Event& event);
  void send(Kind kind, int stage, int micro_batch);
  void start_transfers();
  bool is_behind(const Waiting& transfer) const;
  bool start_transfer(const Waiting& transfer);
  void finish(int stage, int micro_batch);
  void wake(int stage, int micro_batch);
  void start_woken();

  FlowBound bound_;
  OneLane one_lane_;  // runs pipelines of one lane
  int stages_ = 0;
  int lanes_ = 0;
  int64_t credit_tokens_ = 0;
  int64_t limit_ns_ = 0;
  int64_t now_ns_ = 0;
  bool late_ = false;
  std::vector<Unit> micro_batches_;
  std::vector<int> lane_begin_, lane_micro_batches_;  // each lane's micro-batches in order
  std::vector<char> tied_;                            // by lane: tied to the next lane
  bool tied_run_ = false;                             // whether the lanes being run are tied
  PipelineSchedule rounds_;                           // their rounds, scheduled as one lane's micro-batches
  std::vector<int64_t> used_tokens_;                  // by lane
  std::vector<int> finished_;      // by lane, the number of micro-batches before the oldest in flight
  std::vector<Station> stations_;  // by stage, then lane
  std::vector<int> weights_;       // by stage, then as lane_micro_batches_
  std::vector<Station*> woken_;
  EventHeap events_;
  std::vector<Waiting> waiting_, still_;
  std::vector<int64_t> ends_ns_;        // by lane
  PipelineSchedule* record_ = nullptr;  // receives the cells if not null
};

}  // namespace sluice::schedule
