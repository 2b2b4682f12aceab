#include "schedule/test_reference.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace sluice::schedule {
namespace {

using cost::CellKind;

// Units in the order they become ready; each lane's are in the order of injection, because links and stages
// keep it.
class ReadyQueue {
 public:
  void push(int unit) { units_.push_back(unit); }
  void pop() { ++front_; }
  bool empty() const { return front_ == units_.size(); }
  int front() const { return units_[front_]; }

 private:
  std::vector<int> units_;
  size_t front_ = 0;
};

// What stands between a lane's stage and its next cell.
struct LaneStage {
  bool busy = false;
  int finished_units = 0;          // weight gradients done
  int64_t activation_free_ns = 0;  // when its streams can carry the next transfer
  int64_t gradient_free_ns = 0;
  int64_t activation_arrived_ns = 0;  // the last that left from here
  int64_t gradient_arrived_ns = 0;
  ReadyQueue forward;
  ReadyQueue backward;
  ReadyQueue weight;
};

struct Lane {
  int units = 0;           // in all
  int finished_units = 0;  // on every stage
  int64_t used_tokens = 0;
};

enum class EventKind : uint8_t { kCellEnd, kForwardArrival, kBackwardArrival };

// `order` makes simultaneous events happen as they were scheduled.
struct Event {
  int64_t time_ns = 0;
  int64_t order = 0;
  EventKind kind = EventKind::kCellEnd;
  CellKind cell = CellKind::kForward;
  int stage = 0;
  int unit = 0;
  bool operator>(const Event& other) const {
    return std::tie(time_ns, order) > std::tie(other.time_ns, other.order);
  }
};

// A transfer that waits for its streams, from `stage` to the stage above (forward) or below. A unit crosses
// one boundary at a time, so time and unit order all of them.
struct Waiting {
  int64_t ready_ns = 0;
  int unit = 0;
  int stage = 0;
  EventKind direction = EventKind::kForwardArrival;
  bool operator<(const Waiting& other) const {
    return std::tie(ready_ns, unit) < std::tie(other.ready_ns, other.unit);
  }
};

class Simulation {
 public:
  explicit Simulation(const PipelineLoad& load);
  PipelineSchedule run();

 private:
  struct Choice {
    CellKind kind = CellKind::kForward;
    int unit = -1;  // -1: nothing to do
  };

  int last_stage() const { return load_.stages - 1; }
  const TimedUnit& unit_at(int unit) const { return load_.units[static_cast<size_t>(unit)]; }
  LaneStage& place(int stage, int lane) {
    return places_[static_cast<size_t>(stage) * static_cast<size_t>(load_.lanes) + static_cast<size_t>(lane)];
  }
  template <typename Action>
  void for_each_lane(int unit, Action action) {
    const TimedUnit& of = unit_at(unit);
    for (int lane = of.first_lane; lane < of.first_lane + of.lanes; ++lane) action(lane);
  }
  bool fused(int stage, int unit) const {
    const TimedUnit& of = unit_at(unit);
    return of.first_backward_stage >= last_stage() || of.fused ||
           (stage == of.first_backward_stage && final_[static_cast<size_t>(unit)]);
  }
  int64_t duration_ns(int stage, int unit, CellKind kind) const;

  void schedule_event(int64_t time_ns, EventKind kind, CellKind cell, int stage, int unit) {
    events_.push({time_ns, next_order_++, kind, cell, stage, unit});
  }
  void apply(const Event& event);
  void end_cell(const Event& event);
  void send(int stage, int unit, EventKind direction);
  bool start_transfer(const Waiting& transfer);
  int64_t& arrived_ns(const Waiting& transfer, int lane) {
    LaneStage& at = place(transfer.stage, lane);
    return transfer.direction == EventKind::kForwardArrival ? at.activation_arrived_ns
                                                            : at.gradient_arrived_ns;
  }
  void await_those_before();
  void start_transfers();
  void finish(int stage, int unit);
  void wake(int stage, int unit);
  void start_woken();
  void run_from(int first_lane, int end_lane);

  bool admissible(int unit);
  bool credit_waits_for(int unit);
  bool backward_allowed(int stage, int unit);
  Choice choose(int stage, int lane);
  bool try_start(int stage, int lane);
  void start(int stage, Choice choice);

  const PipelineLoad& load_;
  std::vector<LaneStage> places_;  // by stage, then lane
  std::vector<Lane> lanes_;
  std::vector<bool> final_;             // the last unit of every lane it uses
  std::vector<int> unfinished_stages_;  // by unit
  std::vector<bool> tied_;              // by lane: a unit lies on it and the next
  std::vector<bool> awake_;             // by place: something may start there
  std::vector<size_t> woken_;           // the places that are awake
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Waiting> waiting_;  // ascending
  int64_t next_order_ = 0;
  int64_t now_ns_ = 0;
  PipelineSchedule schedule_;
};

Simulation::Simulation(const PipelineLoad& load) : load_(load) {
  SLUICE_ASSERT(load.stages >= 1 && load.lanes >= 1,
                base::text(load.stages, " stages and ", load.lanes, " lanes"));
  const auto stages = static_cast<size_t>(load.stages);
  const auto lanes = static_cast<size_t>(load.lanes);
  places_.resize(stages * lanes);
  lanes_.resize(lanes);
  tied_.resize(lanes, false);
  awake_.resize(stages * lanes, false);
  final_.resize(load.units.size(), true);
  unfinished_stages_.resize(load.units.size(), load.stages);
  schedule_.cells.resize(stages);
  for (auto& stage : schedule_.cells) stage.resize(lanes);

  std::vector<int> last_unit(lanes, -1);
  for (int u = 0; u < static_cast<int>(load.units.size()); ++u) {
    const TimedUnit& unit = unit_at(u);
    if (unit.first_backward_stage > 0)
      unfinished_stages_[static_cast<size_t>(u)] = std::max(1, load.stages - unit.first_backward_stage);
    SLUICE_ASSERT(
        unit.first_lane >= 0 && unit.lanes >= 1 && unit.first_lane + unit.lanes <= load.lanes,
        base::text("unit ", u, " lies on lanes ", unit.first_lane, " + ", unit.lanes, " of ", lanes));
    SLUICE_ASSERT(
        unit.credit() <= load.credit_tokens,
        base::text("unit ", u, " takes ", unit.credit(), " tokens, a lane's credit is ", load.credit_tokens));
    for_each_lane(u, [&](int lane) {
      int& last = last_unit[static_cast<size_t>(lane)];
      if (last >= 0) final_[static_cast<size_t>(last)] = false;
      last = u;
      ++lanes_[static_cast<size_t>(lane)].units;
      place(0, lane).forward.push(u);
      if (lane + 1 < unit.first_lane + unit.lanes) tied_[static_cast<size_t>(lane)] = true;
    });
  }
}

int64_t Simulation::duration_ns(int stage, int unit, CellKind kind) const {
  const TimedUnit& of = unit_at(unit);
  const auto s = static_cast<size_t>(stage);
  switch (kind) {
    case CellKind::kForward: return of.forward_ns[s];
    case CellKind::kBackward: return of.backward_input_ns[s] + of.backward_weight_ns[s];
    case CellKind::kBackwardInput: return of.backward_input_ns[s];
    case CellKind::kBackwardWeight: return of.backward_weight_ns[s];
  }
  SLUICE_ASSERT(false, "unknown cell kind");
}

// A unit enters when it is next on all its lanes and its tokens fit the credit of each.
bool Simulation::admissible(int unit) {
  bool fits = true;
  for_each_lane(unit, [&](int lane) {
    const int64_t used = lanes_[static_cast<size_t>(lane)].used_tokens;
    fits = fits && place(0, lane).forward.front() == unit &&
           used + unit_at(unit).credit() <= load_.credit_tokens;
  });
  return fits;
}

// Whether the next unit lacks credit and `unit` is the one that returns some first. On several lanes a stage
// may wait for a tied unit meanwhile; preferring other cells from one moment to the next would make it start
// late what was ready before, so there this never counts.
bool Simulation::credit_waits_for(int unit) {
  if (load_.lanes > 1) return false;
  const ReadyQueue& next = place(0, 0).forward;
  return unit == lanes_[0].finished_units && !next.empty() &&
         lanes_[0].used_tokens + unit_at(next.front()).credit() > load_.credit_tokens;
}

// The fused backward that ends the first stage with backwards waits for every older weight gradient there. On
// one lane all fused ones wait for those that are left on their stage, so that units finish in order; tied
// units could wait for each other so.
bool Simulation::backward_allowed(int stage, int unit) {
  if (unit_at(unit).first_backward_stage >= last_stage() || !fused(stage, unit)) return true;
  if (load_.lanes == 1 && !place(stage, 0).weight.empty()) return false;
  if (stage != unit_at(unit).first_backward_stage || !final_[static_cast<size_t>(unit)]) return true;
  bool allowed = true;
  for_each_lane(unit, [&](int lane) {
    allowed = allowed && place(stage, lane).finished_units == lanes_[static_cast<size_t>(lane)].units - 1;
  });
  return allowed;
}

Simulation::Choice Simulation::choose(int stage, int lane) {
  LaneStage& at = place(stage, lane);
  if (!at.backward.empty()) {
    const int unit = at.backward.front();
    if (backward_allowed(stage, unit)) {
      return {fused(stage, unit) ? CellKind::kBackward : CellKind::kBackwardInput, unit};
    }
    if (load_.lanes == 1 && !at.weight.empty()) return {CellKind::kBackwardWeight, at.weight.front()};
  }
  if (stage > 0 && !at.weight.empty() && credit_waits_for(at.weight.front())) {
    return {CellKind::kBackwardWeight, at.weight.front()};
  }
  if (!at.forward.empty() && (stage > 0 || admissible(at.forward.front()))) {
    return {CellKind::kForward, at.forward.front()};
  }
  if (!at.weight.empty()) return {CellKind::kBackwardWeight, at.weight.front()};
  return {};
}

// A tied unit starts when all its lanes are free and choose it; until then the free ones wait for it, so
// that no stream of single units can starve it. The oldest ready unit of the highest kind is the choice of
// each of its lanes, hence some lane can always start.
bool Simulation::try_start(int stage, int lane) {
  if (place(stage, lane).busy) return false;
  const Choice choice = choose(stage, lane);
  if (choice.unit < 0) return false;
  bool together = true;
  for_each_lane(choice.unit, [&](int other) {
    if (other == lane || !together) return;
    if (place(stage, other).busy) {
      together = false;
      return;
    }
    const Choice of_other = choose(stage, other);
    together = of_other.unit == choice.unit && of_other.kind == choice.kind;
  });
  if (together) start(stage, choice);
  return together;
}

void Simulation::start(int stage, Choice choice) {
  const int64_t end_ns = now_ns_ + duration_ns(stage, choice.unit, choice.kind);
  for_each_lane(choice.unit, [&](int lane) {
    LaneStage& at = place(stage, lane);
    at.busy = true;
    if (choice.kind == CellKind::kForward) {
      at.forward.pop();
    } else if (choice.kind == CellKind::kBackwardWeight) {
      at.weight.pop();
    } else {
      at.backward.pop();
    }
    if (stage == 0 && choice.kind == CellKind::kForward) {
      int64_t& used = lanes_[static_cast<size_t>(lane)].used_tokens;
      used += unit_at(choice.unit).credit();
      schedule_.peak_tokens = std::max(schedule_.peak_tokens, used);
    }
    schedule_.cells[static_cast<size_t>(stage)][static_cast<size_t>(lane)].push_back(
        {choice.kind, choice.unit, now_ns_, end_ns});
  });
  schedule_event(end_ns, EventKind::kCellEnd, choice.kind, stage, choice.unit);
}

void Simulation::send(int stage, int unit, EventKind direction) {
  const Waiting transfer{now_ns_, unit, stage, direction};
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), transfer), transfer);
}

// Starts a transfer if its stream is free at both ends, on all lanes of the unit.
bool Simulation::start_transfer(const Waiting& transfer) {
  const bool forward = transfer.direction == EventKind::kForwardArrival;
  const int receiver = forward ? transfer.stage + 1 : transfer.stage - 1;
  const auto free_ns = [&](int stage, int lane) -> int64_t& {
    LaneStage& at = place(stage, lane);
    return forward ? at.activation_free_ns : at.gradient_free_ns;
  };
  bool free = true;
  for_each_lane(transfer.unit, [&](int lane) {
    free = free && std::max(free_ns(transfer.stage, lane), free_ns(receiver, lane)) <= now_ns_;
  });
  if (!free) return false;
  const auto boundary = static_cast<size_t>(std::min(transfer.stage, receiver));
  const int64_t end_ns = now_ns_ + unit_at(transfer.unit).transfer_ns[boundary];
  for_each_lane(transfer.unit, [&](int lane) {
    free_ns(transfer.stage, lane) = end_ns;
    free_ns(receiver, lane) = end_ns;
    if (load_.lanes > 1) arrived_ns(transfer, lane) = end_ns;
  });
  schedule_event(end_ns, transfer.direction, CellKind::kForward, receiver, transfer.unit);
  return true;
}

// A transfer of a tied unit may wait for one lane while another is free; the units behind it do not overtake:
// on several lanes a transfer is ready only when those before it on its lanes have arrived.
void Simulation::await_those_before() {
  for (Waiting& transfer : waiting_) {
    for_each_lane(transfer.unit, [&](int lane) {
      transfer.ready_ns = std::max(transfer.ready_ns, arrived_ns(transfer, lane));
    });
  }
  std::sort(waiting_.begin(), waiting_.end());
}

void Simulation::start_transfers() {
  if (load_.lanes > 1) await_those_before();
  std::vector<Waiting> still;
  for (const Waiting& transfer : waiting_) {
    const bool behind =
        load_.lanes > 1 && std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& other) {
          const TimedUnit& a = unit_at(other.unit);
          const TimedUnit& b = unit_at(transfer.unit);
          return other.unit < transfer.unit && other.stage == transfer.stage &&
                 other.direction == transfer.direction && a.first_lane < b.first_lane + b.lanes &&
                 b.first_lane < a.first_lane + a.lanes;
        });
    if (behind || !start_transfer(transfer)) still.push_back(transfer);
  }
  waiting_ = std::move(still);
}

void Simulation::finish(int stage, int unit) {
  for_each_lane(unit, [&](int lane) { ++place(stage, lane).finished_units; });
  if (--unfinished_stages_[static_cast<size_t>(unit)] > 0) return;
  for_each_lane(unit, [&](int lane) {
    ++lanes_[static_cast<size_t>(lane)].finished_units;
    lanes_[static_cast<size_t>(lane)].used_tokens -= unit_at(unit).credit();
  });
  wake(0, unit);
}

// Whatever lets a cell start happens on one of its lanes; that another cell starts never does.
void Simulation::wake(int stage, int unit) {
  for_each_lane(unit, [&](int lane) {
    const size_t at = static_cast<size_t>(stage) * lanes_.size() + static_cast<size_t>(lane);
    if (!awake_[at]) woken_.push_back(at);
    awake_[at] = true;
  });
}

void Simulation::start_woken() {
  std::sort(woken_.begin(), woken_.end());
  for (const size_t at : woken_) {
    awake_[at] = false;
    try_start(static_cast<int>(at / lanes_.size()), static_cast<int>(at % lanes_.size()));
  }
  woken_.clear();
}

void Simulation::end_cell(const Event& event) {
  const auto [stage, unit] = std::pair(event.stage, event.unit);
  const int first_backward_stage = unit_at(unit).first_backward_stage;
  for_each_lane(unit, [&](int lane) { place(stage, lane).busy = false; });
  switch (event.cell) {
    case CellKind::kForward:
      if (stage < last_stage()) {
        send(stage, unit, EventKind::kForwardArrival);
      } else if (first_backward_stage == load_.stages) {
        finish(stage, unit);
      } else {
        for_each_lane(unit, [&](int lane) { place(stage, lane).backward.push(unit); });
      }
      return;
    case CellKind::kBackwardInput:
      for_each_lane(unit, [&](int lane) { place(stage, lane).weight.push(unit); });
      if (stage > first_backward_stage) send(stage, unit, EventKind::kBackwardArrival);
      return;
    case CellKind::kBackward:
      if (stage > first_backward_stage) send(stage, unit, EventKind::kBackwardArrival);
      finish(stage, unit);
      return;
    case CellKind::kBackwardWeight: finish(stage, unit); return;
  }
}

void Simulation::apply(const Event& event) {
  wake(event.stage, event.unit);
  switch (event.kind) {
    case EventKind::kCellEnd: end_cell(event); return;
    case EventKind::kForwardArrival:
      for_each_lane(event.unit, [&](int lane) { place(event.stage, lane).forward.push(event.unit); });
      return;
    case EventKind::kBackwardArrival:
      for_each_lane(event.unit, [&](int lane) { place(event.stage, lane).backward.push(event.unit); });
      return;
  }
}

// Lanes that no unit ties to others, directly or through third ones, have a clock of their own: nothing on
// them depends on the rest.
PipelineSchedule Simulation::run() {
  for (int lane = 0; lane < load_.lanes;) {
    int end = lane + 1;
    while (tied_[static_cast<size_t>(end) - 1]) ++end;
    run_from(lane, end);
    lane = end;
  }
  for (const int stages : unfinished_stages_) SLUICE_ASSERT(stages == 0, "the pipeline stopped early");
  return std::move(schedule_);
}

void Simulation::run_from(int first_lane, int end_lane) {
  now_ns_ = 0;
  for (int lane = first_lane; lane < end_lane; ++lane) try_start(0, lane);
  while (!events_.empty()) {
    now_ns_ = events_.top().time_ns;
    while (!events_.empty() && events_.top().time_ns == now_ns_) {
      while (!events_.empty() && events_.top().time_ns == now_ns_) {
        const Event event = events_.top();
        events_.pop();
        apply(event);
      }
      if (!waiting_.empty()) start_transfers();  // one that takes no time arrives now
    }
    start_woken();
  }
  schedule_.makespan_ns = std::max(schedule_.makespan_ns, now_ns_);
}

}  // namespace

PipelineSchedule reference_schedule(const PipelineLoad& load) { return Simulation(load).run(); }

}  // namespace sluice::schedule
