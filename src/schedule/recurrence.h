// The recurrence that schedule/pipeline_schedule.h describes, on flat arrays that are reused from one
// question to the next: fast enough to search with. It keeps when lanes end, and where it is asked to every
// cell.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "schedule/flow_bound.h"
#include "schedule/micro_batch_table.h"

namespace sluice::schedule {

// A workspace; one thread at a time. Deterministic.
class Recurrence {
 public:
  static constexpr int64_t kLate = std::numeric_limits<int64_t>::max();

  // When the last cell of the micro-batches `order`, in the order of injection, ends on a pipeline of so many
  // lanes with this credit each. kLate when it is above `limit_ns`, which is noticed as soon as a stage
  // cannot end by then. O(cells · log lanes), O(micro-batches) with one stage. REQUIRES: the micro-batches
  // lie on these lanes and do not cross; with several stages none has more tokens than the credit, which one
  // stage never waits for.
  int64_t makespan_ns(const MicroBatchTable& table, std::span<const int> order, int lanes,
                      int64_t credit_tokens, int64_t limit_ns = kLate - 1);

  // Of the last question that was not kLate, by lane: when it has ended, and with several stages all lanes
  // that micro-batches tie to it, directly or through others, too.
  const std::vector<int64_t>& ends_ns() const { return ends_ns_; }

  // All of a table's rows, in this order, with every cell. REQUIRES: likewise.
  PipelineSchedule schedule(const MicroBatchTable& table, int lanes, int64_t credit_tokens);

 private:
  enum class Kind : uint8_t { kForward, kBackwardInput, kBackward, kBackwardWeight, kUp, kDown };
  // `order` makes simultaneous events happen as they were scheduled.
  struct Event {
    int64_t time_ns = 0;
    int order = 0;
    int unit = 0;
    int stage = 0;  // where the cell ends, or the transfer
    Kind kind = Kind::kForward;
    bool operator>(const Event& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : order > other.order;
    }
  };
  // One lane of one stage. Forwards and backwards run in the order of injection, so counts say which is next.
  struct Station {
    int stage = 0, lane = 0;
    bool busy = false;
    bool awake = false;
    int forwards_ready = 0, forwards_started = 0;
    int backwards_ready = 0, backwards_started = 0;
    int weights_ready = 0, weights_started = 0;  // of weights_
    size_t rounds_cells = 0;                     // of its stage in rounds_ that are behind it
    int64_t remaining_ns = 0;                    // of cells that have not started
    int64_t stream_free_ns[2] = {0, 0};          // activations, gradients
    int64_t last_arrival_ns[2] = {0, 0};         // of what left from here
  };
  struct Choice {
    Kind kind = Kind::kForward;
    int unit = -1;  // -1: nothing to do
  };
  // A transfer that waits for its streams, from `stage` up or down.
  struct Waiting {
    int64_t ready_ns = 0;
    int unit = 0;
    int stage = 0;
    Kind kind = Kind::kUp;
    bool operator<(const Waiting& other) const {
      return ready_ns != other.ready_ns ? ready_ns < other.ready_ns : unit < other.unit;
    }
  };
  // By place in the order.
  struct Unit {
    const MicroBatchTable::Cells* cells = nullptr;
    int first_lane = 0;
    int lanes = 1;
    bool fused = false;
    bool last = true;  // of its lanes, and of all that micro-batches tie to them
    int first_backward_stage = 0;
    int unfinished_stages = 0;
    int64_t tokens = 0;
    int round = 0;  // where lanes are tied
  };

  void read(const MicroBatchTable& table, std::span<const int> order, int lanes, int64_t credit_tokens);
  void list_lanes();
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
  // The micro-batch of a lane with so many before it, and how many there are.
  int micro_batch_of(int lane, int before) const {
    return lane_micro_batches_[static_cast<size_t>(lane_begin_[static_cast<size_t>(lane)] + before)];
  }
  int micro_batches_of(int lane) const {
    return lane_begin_[static_cast<size_t>(lane) + 1] - lane_begin_[static_cast<size_t>(lane)];
  }
  // Of a station, the micro-batches whose deferred weight gradients became ready, in this order.
  int& weight(const Station& station, int index) {
    const int lane_begin = lane_begin_[static_cast<size_t>(station.lane)];
    return weights_[static_cast<size_t>(station.stage) * lane_micro_batches_.size() +
                    static_cast<size_t>(lane_begin + index)];
  }
  // Whether no gradient leaves the last stage.
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
  int stages_ = 0;
  int lanes_ = 0;
  int64_t credit_tokens_ = 0;
  int64_t limit_ns_ = 0;
  int64_t now_ns_ = 0;
  int next_order_ = 0;
  bool late_ = false;
  std::vector<Unit> micro_batches_;
  std::vector<int> lane_begin_, lane_micro_batches_;  // each lane's micro-batches in order
  std::vector<char> tied_;                            // by lane: a micro-batch lies on it and the next
  bool tied_run_ = false;                             // of the lanes that run
  PipelineSchedule rounds_;                           // of these, one lane with a micro-batch for each round
  std::vector<int64_t> used_tokens_;                  // by lane
  std::vector<int> finished_;      // by lane, the micro-batches before the oldest in flight
  std::vector<Station> stations_;  // by stage, then lane
  std::vector<int> weights_;       // by stage, then as lane_units_
  std::vector<Station*> woken_;
  std::vector<Event> events_;  // a heap
  std::vector<Waiting> waiting_, still_;
  std::vector<int64_t> ends_ns_;        // by lane
  PipelineSchedule* record_ = nullptr;  // where one is kept
};

}  // namespace sluice::schedule
