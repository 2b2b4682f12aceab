#include "schedule/test_reference.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace sluice::schedule {
namespace {

using cost::CellKind;

// Micro-batches in the order in which they become ready. Each lane's are in the order of injection, because
// links and stages keep it.
class ReadyQueue {
 public:
  void push(int micro_batch) { micro_batches_.push_back(micro_batch); }
  void pop() { ++front_; }
  bool empty() const { return front_ == micro_batches_.size(); }
  int front() const { return micro_batches_[front_]; }

 private:
  std::vector<int> micro_batches_;
  size_t front_ = 0;
};

struct Choice {
  CellKind kind = CellKind::kForward;
  int micro_batch = -1;  // -1: no cell can start
};

// The state of a lane on one stage, which decides its next cell.
struct LaneStage {
  bool busy = false;
  int64_t activation_free_ns = 0;  // when its streams can carry the next transfer
  int64_t gradient_free_ns = 0;
  int64_t activation_arrived_ns = 0;  // the last one that left from here
  int64_t gradient_arrived_ns = 0;
  ReadyQueue forward;
  ReadyQueue backward;
  ReadyQueue weight;
  std::vector<Choice> in_step;  // cells of a tied lane in the order of the rounds, the next one last
};

struct Lane {
  std::vector<int> micro_batches;  // in the order of injection
  size_t oldest = 0;               // the oldest in flight, as an index of these
  int64_t used_tokens = 0;
};

enum class EventKind : uint8_t { kCellEnd, kForwardArrival, kBackwardArrival };

// `order` makes simultaneous events happen in the order in which they were scheduled.
struct Event {
  int64_t time_ns = 0;
  int64_t order = 0;
  EventKind kind = EventKind::kCellEnd;
  CellKind cell = CellKind::kForward;
  int stage = 0;
  int micro_batch = 0;
  bool operator>(const Event& other) const {
    return std::tie(time_ns, order) > std::tie(other.time_ns, other.order);
  }
};

// A transfer that waits for its streams, from `stage` to the stage above (forward) or below. A micro-batch
// crosses one boundary at a time, so ready time and micro-batch give a total order.
struct Waiting {
  int64_t ready_ns = 0;
  int micro_batch = 0;
  int stage = 0;
  EventKind direction = EventKind::kForwardArrival;
  bool operator<(const Waiting& other) const {
    return std::tie(ready_ns, micro_batch) < std::tie(other.ready_ns, other.micro_batch);
  }
};

class Simulation {
 public:
  explicit Simulation(const PipelineLoad& load);
  PipelineSchedule run();

 private:
  int last_stage() const { return load_.stages - 1; }
  const TimedMicroBatch& micro_batch_at(int micro_batch) const {
    return load_.micro_batches[static_cast<size_t>(micro_batch)];
  }
  LaneStage& place(int stage, int lane) {
    return places_[static_cast<size_t>(stage) * static_cast<size_t>(load_.lanes) + static_cast<size_t>(lane)];
  }
  template <typename Action>
  void for_each_lane(int micro_batch, Action action) {
    const TimedMicroBatch& of = micro_batch_at(micro_batch);
    for (int lane = of.first_lane; lane < of.first_lane + of.lanes; ++lane) action(lane);
  }
  bool fused(int stage, int micro_batch) const {
    const TimedMicroBatch& of = micro_batch_at(micro_batch);
    return of.first_backward_stage >= last_stage() || of.fused ||
           (stage == of.first_backward_stage && final_[static_cast<size_t>(micro_batch)]);
  }
  int64_t duration_ns(int stage, int micro_batch, CellKind kind) const;

  void schedule_event(int64_t time_ns, EventKind kind, CellKind cell, int stage, int micro_batch) {
    events_.push({time_ns, next_order_++, kind, cell, stage, micro_batch});
  }
  void apply(const Event& event);
  void end_cell(const Event& event);
  void send(int stage, int micro_batch, EventKind direction);
  bool start_transfer(const Waiting& transfer);
  int64_t& arrived_ns(const Waiting& transfer, int lane) {
    LaneStage& at = place(transfer.stage, lane);
    return transfer.direction == EventKind::kForwardArrival ? at.activation_arrived_ns
                                                            : at.gradient_arrived_ns;
  }
  void await_those_before();
  void start_transfers();
  void finish(int micro_batch);
  void wake(int stage, int micro_batch);
  void start_woken();
  PipelineLoad rounds_of(int first_lane, int end_lane);
  void keep_in_step(int first_lane, int end_lane);
  void run_from(int first_lane, int end_lane);

  bool admissible(int micro_batch);
  bool credit_waits_for(int micro_batch);
  Choice next_in_step(int stage, int lane);
  Choice choose(int stage, int lane);
  bool try_start(int stage, int lane);
  void start(int stage, Choice choice);

  const PipelineLoad& load_;
  std::vector<LaneStage> places_;  // by stage, then lane
  std::vector<Lane> lanes_;
  std::vector<bool> final_;             // the last micro-batch of its lane, or one of the last round
  std::vector<int> round_;              // by micro-batch
  std::vector<int> unfinished_stages_;  // by micro-batch
  std::vector<bool> tied_;              // by lane: a micro-batch lies on it and on the next lane
  std::vector<bool> awake_;             // by place: something may start there
  std::vector<size_t> woken_;           // the places that are awake
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Waiting> waiting_;  // ascending
  int64_t next_order_ = 0;
  int64_t now_ns_ = 0;
  bool tied_run_ = false;  // whether the lanes being run are tied
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
  final_.resize(load.micro_batches.size(), true);
  round_.resize(load.micro_batches.size(), 0);
  unfinished_stages_.resize(load.micro_batches.size(), load.stages);
  schedule_.cells.resize(stages);
  for (auto& stage : schedule_.cells) stage.resize(lanes);

  std::vector<int> last_micro_batch(lanes, -1);
  for (int u = 0; u < static_cast<int>(load.micro_batches.size()); ++u) {
    const TimedMicroBatch& micro_batch = micro_batch_at(u);
    if (micro_batch.first_backward_stage > 0)
      unfinished_stages_[static_cast<size_t>(u)] =
          std::max(1, load.stages - micro_batch.first_backward_stage);
    SLUICE_ASSERT(micro_batch.first_lane >= 0 && micro_batch.lanes >= 1 &&
                      micro_batch.first_lane + micro_batch.lanes <= load.lanes,
                  base::text("unit ", u, " lies on lanes ", micro_batch.first_lane, " + ", micro_batch.lanes,
                             " of ", lanes));
    SLUICE_ASSERT(micro_batch.credit() <= load.credit_tokens,
                  base::text("unit ", u, " takes ", micro_batch.credit(), " tokens, a lane's credit is ",
                             load.credit_tokens));
    for_each_lane(u, [&](int lane) {
      int& last = last_micro_batch[static_cast<size_t>(lane)];
      if (last >= 0) final_[static_cast<size_t>(last)] = false;
      last = u;
      lanes_[static_cast<size_t>(lane)].micro_batches.push_back(u);
      place(0, lane).forward.push(u);
      if (lane + 1 < micro_batch.first_lane + micro_batch.lanes) tied_[static_cast<size_t>(lane)] = true;
    });
  }
}

int64_t Simulation::duration_ns(int stage, int micro_batch, CellKind kind) const {
  const TimedMicroBatch& of = micro_batch_at(micro_batch);
  const auto s = static_cast<size_t>(stage);
  switch (kind) {
    case CellKind::kForward: return of.forward_ns[s];
    case CellKind::kBackward: return of.backward_input_ns[s] + of.backward_weight_ns[s];
    case CellKind::kBackwardInput: return of.backward_input_ns[s];
    case CellKind::kBackwardWeight: return of.backward_weight_ns[s];
  }
  SLUICE_ASSERT(false, "unknown cell kind");
}

// A micro-batch enters if it is next on all its lanes and its tokens fit the credit of each.
bool Simulation::admissible(int micro_batch) {
  bool fits = true;
  for_each_lane(micro_batch, [&](int lane) {
    const int64_t used = lanes_[static_cast<size_t>(lane)].used_tokens;
    fits = fits && place(0, lane).forward.front() == micro_batch &&
           used + micro_batch_at(micro_batch).credit() <= load_.credit_tokens;
  });
  return fits;
}

// Whether its lane's next micro-batch lacks credit and `micro_batch` is the first that will return some.
bool Simulation::credit_waits_for(int micro_batch) {
  const int first = micro_batch_at(micro_batch).first_lane;
  const Lane& lane = lanes_[static_cast<size_t>(first)];
  const ReadyQueue& next = place(0, first).forward;
  return micro_batch == lane.micro_batches[lane.oldest] && !next.empty() &&
         lane.used_tokens + micro_batch_at(next.front()).credit() > load_.credit_tokens;
}

// A tied lane's next cell in the order of the rounds, if it is ready.
Choice Simulation::next_in_step(int stage, int lane) {
  LaneStage& at = place(stage, lane);
  const Choice next = at.in_step.empty() ? Choice{} : at.in_step.back();
  if (next.micro_batch < 0) return next;
  const bool forward = next.kind == CellKind::kForward;
  const ReadyQueue& queue = forward                                  ? at.forward
                            : next.kind == CellKind::kBackwardWeight ? at.weight
                                                                     : at.backward;
  const bool ready = !queue.empty() && queue.front() == next.micro_batch;
  const bool enters = forward && stage == 0;
  return ready && (!enters || admissible(next.micro_batch)) ? next : Choice{};
}

// A fused backward waits for the weight gradients left on its stage. On the last stage its forward waits for
// them already.
Choice Simulation::choose(int stage, int lane) {
  LaneStage& at = place(stage, lane);
  if (tied_run_) return next_in_step(stage, lane);
  if (!at.backward.empty()) {
    const int micro_batch = at.backward.front();
    if (!fused(stage, micro_batch)) return {CellKind::kBackwardInput, micro_batch};
    if (at.weight.empty()) return {CellKind::kBackward, micro_batch};
    return {CellKind::kBackwardWeight, at.weight.front()};
  }
  if (stage > 0 && !at.weight.empty() && credit_waits_for(at.weight.front())) {
    return {CellKind::kBackwardWeight, at.weight.front()};
  }
  if (stage == last_stage() && !at.weight.empty() && !at.forward.empty() && fused(stage, at.forward.front()))
    return {CellKind::kBackwardWeight, at.weight.front()};
  if (!at.forward.empty() && (stage > 0 || admissible(at.forward.front()))) {
    return {CellKind::kForward, at.forward.front()};
  }
  if (!at.weight.empty()) return {CellKind::kBackwardWeight, at.weight.front()};
  return {};
}

// A tied micro-batch starts when all its lanes are free and choose it.
bool Simulation::try_start(int stage, int lane) {
  if (place(stage, lane).busy) return false;
  const Choice choice = choose(stage, lane);
  if (choice.micro_batch < 0) return false;
  bool together = true;
  for_each_lane(choice.micro_batch, [&](int other) {
    if (other == lane || !together) return;
    if (place(stage, other).busy) {
      together = false;
      return;
    }
    const Choice of_other = choose(stage, other);
    together = of_other.micro_batch == choice.micro_batch && of_other.kind == choice.kind;
  });
  if (together) start(stage, choice);
  return together;
}

void Simulation::start(int stage, Choice choice) {
  const int64_t end_ns = now_ns_ + duration_ns(stage, choice.micro_batch, choice.kind);
  for_each_lane(choice.micro_batch, [&](int lane) {
    LaneStage& at = place(stage, lane);
    at.busy = true;
    if (tied_run_) at.in_step.pop_back();
    if (choice.kind == CellKind::kForward) {
      at.forward.pop();
    } else if (choice.kind == CellKind::kBackwardWeight) {
      at.weight.pop();
    } else {
      at.backward.pop();
    }
    if (stage == 0 && choice.kind == CellKind::kForward) {
      int64_t& used = lanes_[static_cast<size_t>(lane)].used_tokens;
      used += micro_batch_at(choice.micro_batch).credit();
      schedule_.peak_tokens = std::max(schedule_.peak_tokens, used);
    }
    schedule_.cells[static_cast<size_t>(stage)][static_cast<size_t>(lane)].push_back(
        {choice.kind, choice.micro_batch, now_ns_, end_ns});
  });
  schedule_event(end_ns, EventKind::kCellEnd, choice.kind, stage, choice.micro_batch);
}

void Simulation::send(int stage, int micro_batch, EventKind direction) {
  const Waiting transfer{now_ns_, micro_batch, stage, direction};
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), transfer), transfer);
}

// Starts a transfer if its stream is free at both ends, on all lanes of the micro-batch.
bool Simulation::start_transfer(const Waiting& transfer) {
  const bool forward = transfer.direction == EventKind::kForwardArrival;
  const int receiver = forward ? transfer.stage + 1 : transfer.stage - 1;
  const auto free_ns = [&](int stage, int lane) -> int64_t& {
    LaneStage& at = place(stage, lane);
    return forward ? at.activation_free_ns : at.gradient_free_ns;
  };
  bool free = true;
  for_each_lane(transfer.micro_batch, [&](int lane) {
    free = free && std::max(free_ns(transfer.stage, lane), free_ns(receiver, lane)) <= now_ns_;
  });
  if (!free) return false;
  const auto boundary = static_cast<size_t>(std::min(transfer.stage, receiver));
  const int64_t end_ns = now_ns_ + micro_batch_at(transfer.micro_batch).transfer_ns[boundary];
  for_each_lane(transfer.micro_batch, [&](int lane) {
    free_ns(transfer.stage, lane) = end_ns;
    free_ns(receiver, lane) = end_ns;
    if (load_.lanes > 1) arrived_ns(transfer, lane) = end_ns;
  });
  schedule_event(end_ns, transfer.direction, CellKind::kForward, receiver, transfer.micro_batch);
  return true;
}

// A tied micro-batch's transfer may wait for one lane while another is free, and later ones must not overtake
// it. With several lanes a transfer is ready only when those before it on its lanes have arrived.
void Simulation::await_those_before() {
  for (Waiting& transfer : waiting_) {
    for_each_lane(transfer.micro_batch, [&](int lane) {
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
          const TimedMicroBatch& a = micro_batch_at(other.micro_batch);
          const TimedMicroBatch& b = micro_batch_at(transfer.micro_batch);
          return other.micro_batch < transfer.micro_batch && other.stage == transfer.stage &&
                 other.direction == transfer.direction && a.first_lane < b.first_lane + b.lanes &&
                 b.first_lane < a.first_lane + a.lanes;
        });
    if (behind || !start_transfer(transfer)) still.push_back(transfer);
  }
  waiting_ = std::move(still);
}

void Simulation::finish(int micro_batch) {
  if (--unfinished_stages_[static_cast<size_t>(micro_batch)] > 0) return;
  for_each_lane(micro_batch, [&](int lane) {
    Lane& at = lanes_[static_cast<size_t>(lane)];
    at.used_tokens -= micro_batch_at(micro_batch).credit();
    const auto finished = [&](int of) { return unfinished_stages_[static_cast<size_t>(of)] == 0; };
    at.oldest =
        static_cast<size_t>(std::ranges::find_if_not(at.micro_batches, finished) - at.micro_batches.begin());
  });
  wake(0, micro_batch);
}

// A cell can become startable only by an event on one of its lanes, never by the start of another cell.
void Simulation::wake(int stage, int micro_batch) {
  for_each_lane(micro_batch, [&](int lane) {
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
  const auto [stage, unit] = std::pair(event.stage, event.micro_batch);
  const int first_backward_stage = micro_batch_at(unit).first_backward_stage;
  for_each_lane(unit, [&](int lane) { place(stage, lane).busy = false; });
  switch (event.cell) {
    case CellKind::kForward:
      if (stage < last_stage()) {
        send(stage, unit, EventKind::kForwardArrival);
      } else if (first_backward_stage == load_.stages) {
        finish(unit);
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
      finish(unit);
      return;
    case CellKind::kBackwardWeight: finish(unit); return;
  }
}

void Simulation::apply(const Event& event) {
  wake(event.stage, event.micro_batch);
  switch (event.kind) {
    case EventKind::kCellEnd: end_cell(event); return;
    case EventKind::kForwardArrival:
      for_each_lane(event.micro_batch,
                    [&](int lane) { place(event.stage, lane).forward.push(event.micro_batch); });
      return;
    case EventKind::kBackwardArrival:
      for_each_lane(event.micro_batch,
                    [&](int lane) { place(event.stage, lane).backward.push(event.micro_batch); });
      return;
  }
}

// Groups of tied lanes run on clocks of their own, as do lanes without ties: nothing on them depends on other
// lanes.
PipelineSchedule Simulation::run() {
  for (int lane = 0; lane < load_.lanes;) {
    int end = lane + 1;
    while (tied_[static_cast<size_t>(end) - 1]) ++end;
    tied_run_ = end > lane + 1;
    if (tied_run_) keep_in_step(lane, end);
    run_from(lane, end);
    lane = end;
  }
  for (const int stages : unfinished_stages_) SLUICE_ASSERT(stages == 0, "the pipeline stopped early");
  return std::move(schedule_);
}

// Assigns each micro-batch to the first round behind all earlier ones on its lanes. A round has its longest
// cells.
PipelineLoad Simulation::rounds_of(int first_lane, int end_lane) {
  PipelineLoad rounds{.stages = load_.stages, .credit_tokens = load_.credit_tokens};
  std::vector<int> reached(lanes_.size(), 0);
  for (int u = 0; u < static_cast<int>(load_.micro_batches.size()); ++u) {
    const TimedMicroBatch& micro_batch = micro_batch_at(u);
    if (micro_batch.first_lane < first_lane || micro_batch.first_lane >= end_lane) continue;
    int& round = round_[static_cast<size_t>(u)];
    for_each_lane(u, [&](int lane) { round = std::max(round, reached[static_cast<size_t>(lane)]); });
    for_each_lane(u, [&](int lane) { reached[static_cast<size_t>(lane)] = round + 1; });
    const auto stages = static_cast<size_t>(load_.stages);
    if (round == std::ssize(rounds.micro_batches)) {
      rounds.micro_batches.push_back({.fused = true,
                                      .first_backward_stage = micro_batch.first_backward_stage,
                                      .forward_ns = std::vector<int64_t>(stages, 0),
                                      .backward_input_ns = std::vector<int64_t>(stages, 0),
                                      .backward_weight_ns = std::vector<int64_t>(stages, 0),
                                      .transfer_ns = std::vector<int64_t>(stages - 1, 0)});
    }
    TimedMicroBatch& of = rounds.micro_batches[static_cast<size_t>(round)];
    of.tokens = std::max(of.tokens, micro_batch.credit());
    of.fused = of.fused && micro_batch.fused;
    const auto raise = [](int64_t& to, int64_t ns) { to = std::max(to, ns); };
    for (size_t s = 0; s < stages; ++s) {
      raise(of.forward_ns[s], micro_batch.forward_ns[s]);
      raise(of.backward_input_ns[s],
            micro_batch.backward_input_ns[s] + (micro_batch.fused ? micro_batch.backward_weight_ns[s] : 0));
      if (!micro_batch.fused) raise(of.backward_weight_ns[s], micro_batch.backward_weight_ns[s]);
      if (s + 1 < stages) raise(of.transfer_ns[s], micro_batch.transfer_ns[s]);
    }
  }
  return rounds;
}

// Lists the tied lanes' cells in the order in which one lane would run the rounds.
void Simulation::keep_in_step(int first_lane, int end_lane) {
  const PipelineLoad rounds = rounds_of(first_lane, end_lane);
  const PipelineSchedule order = Simulation(rounds).run();
  for (int lane = first_lane; lane < end_lane; ++lane) {
    for (const int micro_batch : lanes_[static_cast<size_t>(lane)].micro_batches)
      final_[static_cast<size_t>(micro_batch)] =
          round_[static_cast<size_t>(micro_batch)] + 1 == std::ssize(rounds.micro_batches);
  }
  for (int stage = 0; stage < load_.stages; ++stage) {
    for (int lane = first_lane; lane < end_lane; ++lane) {
      std::vector<Choice>& cells = place(stage, lane).in_step;
      for (const Cell& cell : order.cells[static_cast<size_t>(stage)].front()) {
        for (const int micro_batch : lanes_[static_cast<size_t>(lane)].micro_batches) {
          if (round_[static_cast<size_t>(micro_batch)] != cell.micro_batch) continue;
          CellKind kind = cell.kind;
          if (kind == CellKind::kBackwardWeight && fused(stage, micro_batch)) continue;
          if (kind == CellKind::kBackwardInput && fused(stage, micro_batch)) kind = CellKind::kBackward;
          cells.push_back({kind, micro_batch});
        }
      }
      std::ranges::reverse(cells);
    }
  }
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
      if (!waiting_.empty()) start_transfers();  // transfers that take no time arrive now
    }
    start_woken();
  }
  schedule_.makespan_ns = std::max(schedule_.makespan_ns, now_ns_);
}

}  // namespace

PipelineSchedule reference_schedule(const PipelineLoad& load) { return Simulation(load).run(); }

}  // namespace sluice::schedule
