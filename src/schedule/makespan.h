// The makespan of a pipeline of one lane, fast enough to search with: schedule_pipeline's recurrence without
// its record of cells, in flat arrays that are reused from one question to the next. A test holds both equal.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "schedule/pipeline_schedule.h"

namespace sluice::schedule {

// Durations of units on every stage, a row a unit. Rows are overwritten in place while a search changes
// units.
class UnitTable {
 public:
  explicit UnitTable(int stages) : stages_(stages) {}

  int stages() const { return stages_; }
  int units() const { return static_cast<int>(tokens_.size()); }
  // Rows [0, units); what they hold stays, new ones are zero.
  void resize(int units);
  int64_t& tokens(int unit) { return tokens_[static_cast<size_t>(unit)]; }
  int64_t tokens(int unit) const { return tokens_[static_cast<size_t>(unit)]; }
  void set_fused(int unit, bool fused) { fused_[static_cast<size_t>(unit)] = fused ? 1 : 0; }
  bool fused(int unit) const { return fused_[static_cast<size_t>(unit)] != 0; }

  // A stage of a unit; `transfer_ns` is that of the boundary to the next stage.
  struct Cells {
    int64_t forward_ns = 0;
    int64_t backward_input_ns = 0;
    int64_t backward_weight_ns = 0;
    int64_t transfer_ns = 0;
    int64_t all_ns() const { return forward_ns + backward_input_ns + backward_weight_ns; }
  };
  std::span<Cells> row(int unit) {
    return std::span(cells_).subspan(static_cast<size_t>(unit) * static_cast<size_t>(stages_),
                                     static_cast<size_t>(stages_));
  }
  std::span<const Cells> row(int unit) const {
    return std::span(cells_).subspan(static_cast<size_t>(unit) * static_cast<size_t>(stages_),
                                     static_cast<size_t>(stages_));
  }
  // REQUIRES: it has this table's stages and lies on one lane.
  void append(const TimedUnit& unit);

 private:
  int stages_;
  std::vector<int64_t> tokens_;
  std::vector<char> fused_;
  std::vector<Cells> cells_;  // by unit, then stage
};

// A workspace; one thread at a time. Deterministic.
class Makespan {
 public:
  static constexpr int64_t kLate = std::numeric_limits<int64_t>::max();

  // Of the units `order`, in the order of injection, of a pipeline of one lane with this credit: what
  // schedule_pipeline finds. kLate when it is above `limit_ns`, which is noticed as soon as a stage cannot
  // end by then. O(cells · stages), O(units) with one stage. REQUIRES: no unit has more tokens than the
  // credit.
  int64_t of(const UnitTable& table, std::span<const int> order, int64_t credit_tokens,
             int64_t limit_ns = kLate - 1);

  // What the order of injection alone asks for, never above of(): forwards pass the stages like jobs a flow
  // shop, so do input gradients on the way back, with weight gradients on stage 0, and the last stage is busy
  // from its first cell on; a unit enters when enough of those before it have finished. O(cells).
  int64_t at_least_ns(const UnitTable& table, std::span<const int> order, int64_t credit_tokens);

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  enum class Running : uint8_t { kNothing, kForward, kBackwardInput, kBackwardWeight, kBackward };

  // Cells of a stage run in the order of injection within each kind, so counts say everything. A unit is
  // named by its place in the order.
  struct Stage {
    int64_t end_ns = kNever;  // of the running cell
    Running running = Running::kNothing;
    int forwards_ready = 0, forwards_started = 0;
    int backwards_ready = 0, backwards_started = 0;
    int weights_ready = 0, weights_started = 0;
    int finished = 0;                    // units whose weight gradient is done
    int64_t remaining_ns = 0;            // of cells that have not started
    int64_t stream_free_ns[2] = {0, 0};  // activations, gradients
  };
  // A boundary in one direction: units wait in order, one moves.
  struct Link {
    int sent = 0;     // units that have reached it
    int started = 0;  // of those, how many have begun to move
    int64_t arrival_ns = kNever;
  };

  void read(const UnitTable& table, std::span<const int> order, int64_t credit_tokens);
  int64_t pass_stages();
  int64_t least_ns();
  void reset();
  const UnitTable::Cells& cells(int place, size_t stage) const {
    return rows_[static_cast<size_t>(place)][stage];
  }
  bool start_cells();
  bool start_cell(size_t stage);
  bool run(size_t stage, Running what, int64_t duration_ns);
  bool credit_waits() const;
  bool is_fused(size_t stage, int place) const {
    return fused_[static_cast<size_t>(place)] != 0 || (stage == 0 && place == units_ - 1);
  }
  int64_t next_event_ns() const;
  void apply_events();
  void end_cell(size_t stage);
  void finish(size_t stage);
  void arrive(size_t direction, size_t boundary);
  void send(size_t direction, size_t boundary);
  void start_transfers();
  bool start_transfer(size_t direction);

  const UnitTable* table_ = nullptr;
  int units_ = 0;
  int64_t credit_tokens_ = 0;
  int64_t limit_ns_ = 0;
  int64_t now_ns_ = 0;
  int64_t used_tokens_ = 0;
  int finished_ = 0;                           // units done on every stage
  int waiting_ = 0;                            // transfers
  std::vector<const UnitTable::Cells*> rows_;  // by place
  std::vector<int64_t> tokens_;                // by place
  std::vector<char> fused_;                    // by place
  // Of least_ns: by stage the forwards and the input gradients so far, by place the forward's end and a
  // finish.
  std::vector<int64_t> heads_ns_, returns_ns_, reached_ns_, finished_ns_;
  int64_t turned_ns_ = 0;  // the last stage, weight gradients apart
  std::vector<Stage> stages_;
  std::vector<Link> links_[2];        // by boundary: up with activations, down with gradients
  std::vector<int64_t> ready_ns_[2];  // by boundary, then place: when a unit reached it
};

}  // namespace sluice::schedule
