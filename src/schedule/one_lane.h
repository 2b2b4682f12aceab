// The recurrence of schedule/pipeline_schedule.h on a pipeline of one lane: most trial schedules of a search.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/event_heap.h"
#include "schedule/micro_batch_table.h"

namespace sluice::schedule {

// The transfers in one direction between neighbouring stages. Each stage sends or receives one at a time.
class OneWay {
 public:
  // `step`: 1 for transfers to the next stage, -1 for those to the one below.
  explicit OneWay(int step) : step_(step) {}

  void reset(size_t stages);
  // A transfer that waits for its streams from now on.
  void send(int64_t now_ns, int stage, int unit);
  // A transfer ends now.
  void end_one() { changed_ = true; }
  // Starts transfers whose streams are free at both ends, the earliest ready first. start(unit, stage, to)
  // returns a transfer's end. Only after send() or end_one() can any start.
  template <typename Start>
  void start_free(int64_t now_ns, const Start& start) {
    if (!changed_) return;
    changed_ = false;
    size_t kept = 0;
    for (const Waiting& transfer : waiting_) {
      const int to = transfer.stage + step_;
      int64_t& from_ns = free_ns_[static_cast<size_t>(transfer.stage)];
      int64_t& to_ns = free_ns_[static_cast<size_t>(to)];
      if (from_ns > now_ns || to_ns > now_ns) {
        waiting_[kept++] = transfer;
      } else {
        from_ns = to_ns = start(transfer.unit, transfer.stage, to);
      }
    }
    waiting_.resize(kept);
  }

 private:
  struct Waiting {
    int64_t ready_ns = 0;
    int unit = 0;
    int stage = 0;
  };
  int step_;
  bool changed_ = false;
  std::vector<int64_t> free_ns_;  // by stage
  std::vector<Waiting> waiting_;  // by time and micro-batch
};

// A workspace; one thread at a time. Deterministic. Takes the same decisions as schedule/recurrence.h, where
// a lane's next micro-batch is found by its counts; here counts are the micro-batches.
class OneLane {
 public:
  // The end of the last cell of the micro-batches `order`; base::kNever if it is above `limit_ns`, as soon as
  // a stage cannot end by then. Appends cells to `record`, by stage, unless it is null. REQUIRES: no
  // micro-batch has more tokens than the credit.
  int64_t makespan_ns(const MicroBatchTable& table, std::span<const int> order, int64_t credit_tokens,
                      int64_t limit_ns, PipelineSchedule* record = nullptr);

 private:
  using Event = ScheduleEvent;
  using Kind = Event::Kind;
  struct Stage {
    bool busy = false;
    int forwards_ready = 0, forwards_started = 0;
    int backwards_ready = 0, backwards_started = 0;
    int weights_ready = 0, weights_started = 0;  // counts in weights_
    int64_t remaining_ns = 0, path_ns = 0;       // as Recurrence::Station's
  };
  struct Unit {
    const MicroBatchTable::Cells* cells = nullptr;
    int first_backward_stage = 0;
    int unfinished_stages = 0;
    bool fused = false;  // on every stage
    bool last = false;
    int64_t tokens = 0;
  };

  void read(const MicroBatchTable& table, std::span<const int> order, int64_t credit_tokens);
  void add_cells();
  bool fused(int stage, int unit) const {
    const Unit& of = units_[static_cast<size_t>(unit)];
    return of.fused || (of.last && stage == of.first_backward_stage);
  }
  int& weight(int stage, int index) {
    return weights_[static_cast<size_t>(stage) * units_.size() + static_cast<size_t>(index)];
  }
  bool has_credit_for(size_t unit) const { return used_tokens_ + units_[unit].tokens <= credit_tokens_; }
  bool credit_waits_for(int unit) const;
  void wake(int stage) { woken_[static_cast<size_t>(stage) / 64] |= uint64_t{1} << (stage % 64); }
  void apply(const Event& event);
  void end_cell(const Event& event, Stage& at);
  void start_transfers();
  void finish(int unit);
  void start_woken();
  void try_start(int stage);
  void start(Kind kind, int stage, int unit);

  int64_t credit_tokens_ = 0;
  int64_t limit_ns_ = 0;
  int64_t now_ns_ = 0;
  bool late_ = false;
  int64_t used_tokens_ = 0;
  size_t finished_ = 0;  // micro-batches before the oldest in flight
  std::vector<Unit> units_;
  std::vector<Stage> stages_;
  std::vector<int> weights_;     // by stage: micro-batches whose deferred weight gradients became ready
  std::vector<uint64_t> woken_;  // a bit for each stage
  EventHeap events_;
  OneWay up_{1}, down_{-1};
  PipelineSchedule* record_ = nullptr;
};

}  // namespace sluice::schedule
