// The makespan of lanes that rings tie to each other, fast enough to try plans with: schedule_pipeline's
// recurrence for a pipeline of several lanes without its record of cells, in flat arrays that are reused from
// one question to the next. A test holds both equal.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "schedule/makespan.h"

namespace sluice::schedule {

// Units on neighbouring lanes, which are counted from 0; rows in the order of injection.
struct TiedUnits {
  explicit TiedUnits(int stages) : table(stages) {}
  void clear() {
    table.resize(0);
    first_lane.clear();
    lanes.clear();
  }
  void append(const TimedUnit& unit);

  UnitTable table;
  std::vector<int> first_lane, lanes;  // by row
};

// A workspace; one thread at a time. Deterministic.
class TiedMakespan {
 public:
  static constexpr int64_t kLate = std::numeric_limits<int64_t>::max();

  // Of these units on so many lanes of a pipeline that has several (one alone runs under other rules, see
  // Makespan): what schedule_pipeline finds. kLate when it is above `limit_ns`, which is noticed as soon as a
  // stage cannot end by then. O(cells · log cells). REQUIRES: several stages; all units fused or none; no
  // unit has more tokens than the credit.
  int64_t of(const TiedUnits& units, int lanes, int64_t credit_tokens, int64_t limit_ns = kLate - 1);

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
  // Cells of each kind run in the order of injection on every lane of a stage, so counts say everything.
  struct Place {
    bool busy = false;
    bool awake = false;
    int forwards_ready = 0, forwards_started = 0;
    int backwards_ready = 0, backwards_started = 0;
    int weights_ready = 0, weights_started = 0;
    int finished = 0;
    int64_t remaining_ns = 0;             // of cells that have not started
    int64_t stream_free_ns[2] = {0, 0};   // activations, gradients
    int64_t last_arrival_ns[2] = {0, 0};  // of what left from here
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

  void reset();
  const UnitTable::Cells& cells(int unit, int stage) const {
    return rows_[static_cast<size_t>(unit)][static_cast<size_t>(stage)];
  }
  int place_of(int stage, int unit) const {
    return stage * lanes_ + units_->first_lane[static_cast<size_t>(unit)];
  }
  std::span<Place> places_of(int stage, int unit) {
    return std::span(places_).subspan(static_cast<size_t>(place_of(stage, unit)),
                                      static_cast<size_t>(units_->lanes[static_cast<size_t>(unit)]));
  }
  // The unit of a lane with so many before it.
  int unit_of(int lane, int before) const {
    return lane_units_[static_cast<size_t>(lane_begin_[static_cast<size_t>(lane)] + before)];
  }
  int units_of(int lane) const {
    return lane_begin_[static_cast<size_t>(lane) + 1] - lane_begin_[static_cast<size_t>(lane)];
  }
  bool fused(int stage, int unit) const {
    return all_fused_ || (stage == 0 && final_[static_cast<size_t>(unit)]);
  }
  bool admissible(int unit) const;
  bool may_end(int unit) const;
  Choice choose(int place) const;
  void try_start(int place);
  void start(int stage, const Choice& choice);
  void push(int64_t time_ns, Kind kind, int stage, int unit);
  void apply(const Event& event);
  void send(Kind kind, int stage, int unit);
  void start_transfers();
  bool is_behind(const Waiting& transfer) const;
  bool start_transfer(const Waiting& transfer);
  void finish(int stage, int unit);
  void wake(int stage, int unit);
  void start_woken();

  const TiedUnits* units_ = nullptr;
  int stages_ = 0;
  int lanes_ = 0;
  int64_t credit_tokens_ = 0;
  int64_t limit_ns_ = 0;
  int64_t now_ns_ = 0;
  int next_order_ = 0;
  bool all_fused_ = false;
  bool late_ = false;
  std::vector<const UnitTable::Cells*> rows_;  // by unit
  std::vector<int> lane_begin_, lane_units_;   // each lane's units in order
  std::vector<char> final_;                    // by unit: the last of all its lanes
  std::vector<int> unfinished_stages_;         // by unit
  std::vector<int64_t> used_tokens_;           // by lane
  std::vector<Place> places_;                  // by stage, then lane
  std::vector<int> woken_;                     // places
  std::vector<Event> events_;                  // a heap
  std::vector<Waiting> waiting_, still_;
};

}  // namespace sluice::schedule
