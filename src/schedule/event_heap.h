// Events of a schedule's recurrences, and a binary heap of them, the earliest first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::schedule {

// The end of a cell or of a transfer. Simultaneous events may happen in any order: they change counts, and
// cells start when all have happened.
struct ScheduleEvent {
  enum class Kind : uint8_t { kForward, kBackwardInput, kBackward, kBackwardWeight, kUp, kDown };
  int64_t time_ns = 0;
  int unit = 0;
  int16_t stage = 0;  // the stage where the cell or the transfer ends
  Kind kind = Kind::kForward;
};

// Events of one time come in any order. pop() moves the hole to a
// leaf along the earlier children, without a branch that depends on times, and the last event up from there:
// new events are late ones (Wegener, Bottom-Up-Heapsort, 1993).
class EventHeap {
 public:
  using Event = ScheduleEvent;
  bool empty() const { return events_.empty(); }
  void clear() { events_.clear(); }
  // REQUIRES: not empty.
  int64_t first_ns() const { return events_.front().time_ns; }

  void push(const Event& event) {
    events_.push_back(event);
    rise(events_.size() - 1, event);
  }

  // REQUIRES: not empty.
  Event pop() {
    const Event first = events_.front();
    const Event last = events_.back();
    events_.pop_back();
    const size_t size = events_.size();
    if (size == 0) return first;
    size_t hole = 0;
    for (size_t child = 1; child < size; child = 2 * hole + 1) {
      const bool right = child + 1 < size && events_[child + 1].time_ns < events_[child].time_ns;
      child += right ? 1 : 0;
      events_[hole] = events_[child];
      hole = child;
    }
    rise(hole, last);
    return first;
  }

 private:
  void rise(size_t hole, const Event& event) {
    while (hole > 0) {
      const size_t parent = (hole - 1) / 2;
      if (events_[parent].time_ns <= event.time_ns) break;
      events_[hole] = events_[parent];
      hole = parent;
    }
    events_[hole] = event;
  }

  std::vector<Event> events_;
};

}  // namespace sluice::schedule
