#include "schedule/recurrence.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/never.h"
#include "base/text.h"

namespace sluice::schedule {

int64_t Recurrence::makespan_ns(const MicroBatchTable& table, std::span<const int> order, int lanes,
                                int64_t credit_tokens, int64_t limit_ns) {
  const bool bounded = table.stages() > 1 && limit_ns < base::kNever - 1;
  if (bounded && bound_.at_least_ns(table, order, lanes, credit_tokens, limit_ns) > limit_ns)
    return base::kNever;
  if (lanes == 1 && table.stages() > 1) {
    const int64_t end_ns = one_lane_.makespan_ns(table, order, credit_tokens, limit_ns);
    if (end_ns != base::kNever) ends_ns_.assign(1, end_ns);
    return end_ns;
  }
  record_ = nullptr;
  limit_ns_ = limit_ns;
  read(table, order, lanes, credit_tokens);
  const int64_t end_ns = stages_ == 1 ? pass_one_stage() : run();
  return late_ || end_ns > limit_ns ? base::kNever : end_ns;
}

PipelineSchedule Recurrence::schedule(const MicroBatchTable& table, int lanes, int64_t credit_tokens) {
  std::vector<int> order(static_cast<size_t>(table.micro_batches()));
  std::iota(order.begin(), order.end(), 0);
  PipelineSchedule schedule;
  schedule.cells.resize(static_cast<size_t>(table.stages()));
  for (auto& stage : schedule.cells) stage.resize(static_cast<size_t>(lanes));
  if (lanes == 1) {
    schedule.makespan_ns = one_lane_.makespan_ns(table, order, credit_tokens, base::kNever - 1, &schedule);
    ends_ns_.assign(1, schedule.makespan_ns);
    return schedule;
  }
  record_ = &schedule;
  limit_ns_ = base::kNever - 1;
  read(table, order, lanes, credit_tokens);
  schedule.makespan_ns = run();
  record_ = nullptr;
  return schedule;
}

void Recurrence::read(const MicroBatchTable& table, std::span<const int> order, int lanes,
                      int64_t credit_tokens) {
  stages_ = table.stages();
  SLUICE_ASSERT(stages_ <= std::numeric_limits<int16_t>::max(), base::text(stages_, " stages"));
  lanes_ = lanes;
  credit_tokens_ = credit_tokens;
  late_ = false;
  micro_batches_.clear();
  for (const int row : order) {
    const MicroBatchTable::Head& head = table.head(row);
    SLUICE_ASSERT(head.first_lane >= 0 && head.lanes >= 1 && head.first_lane + head.lanes <= lanes,
                  base::text("micro-batch ", row, " lies on lanes ", head.first_lane, " + ", head.lanes,
                             " of ", lanes));
    micro_batches_.push_back({.cells = table.row(row).data(),
                              .first_lane = head.first_lane,
                              .lanes = head.lanes,
                              .fused = head.fused,
                              .first_backward_stage = head.first_backward_stage,
                              .unfinished_stages = std::max(1, stages_ - head.first_backward_stage),
                              .tokens = head.tokens});
  }
}

// Micro-batches follow each other on every lane; forward and backward run back to back.
int64_t Recurrence::pass_one_stage() {
  ends_ns_.assign(static_cast<size_t>(lanes_), 0);
  for (const Unit& micro_batch : micro_batches_) {
    const auto first = ends_ns_.begin() + micro_batch.first_lane;
    const int64_t start_ns = *std::max_element(first, first + micro_batch.lanes);
    std::fill_n(first, micro_batch.lanes, start_ns + micro_batch.cells[0].all_ns());
  }
  return *std::ranges::max_element(ends_ns_);
}

// Lists each lane's micro-batches, marks those that are last on all their lanes, and finds tied
// lanes.
void Recurrence::list_lanes() {
  lane_begin_.assign(static_cast<size_t>(lanes_) + 1, 0);
  tied_.assign(static_cast<size_t>(lanes_), 0);
  for (const Unit& micro_batch : micro_batches_) {
    for (int lane = micro_batch.first_lane; lane < micro_batch.first_lane + micro_batch.lanes; ++lane) {
      ++lane_begin_[static_cast<size_t>(lane) + 1];
      if (lane + 1 < micro_batch.first_lane + micro_batch.lanes) tied_[static_cast<size_t>(lane)] = 1;
    }
  }
  for (size_t lane = 0; lane < tied_.size(); ++lane) lane_begin_[lane + 1] += lane_begin_[lane];
  lane_micro_batches_.resize(static_cast<size_t>(lane_begin_.back()));
  for (size_t u = 0; u < micro_batches_.size(); ++u) {
    for (int lane = micro_batches_[u].first_lane;
         lane < micro_batches_[u].first_lane + micro_batches_[u].lanes; ++lane) {
      int& reached = stations_[static_cast<size_t>(lane)].forwards_ready;
      if (reached > 0) micro_batches_[static_cast<size_t>(micro_batch_of(lane, reached - 1))].last = false;
      lane_micro_batches_[static_cast<size_t>(lane_begin_[static_cast<size_t>(lane)] + reached++)] =
          static_cast<int>(u);
    }
  }
}

// The lane's last gradient passes all lower stages that have backwards, and the lowest one's weight gradient.
void Recurrence::add_way_down(int lane) {
  if (micro_batches_of(lane) == 0) return;
  const Unit& last = at(micro_batch_of(lane, micro_batches_of(lane) - 1));
  const int lowest = last.first_backward_stage;
  if (lowest >= stages_) return;
  int64_t way_ns = last.cells[lowest].backward_weight_ns;
  for (int stage = lowest + 1; stage < stages_; ++stage) {
    way_ns += last.cells[stage - 1].transfer_ns + last.cells[stage - 1].backward_input_ns;
    stations_[static_cast<size_t>(stage * lanes_ + lane)].path_ns += way_ns;
  }
}

// Groups of tied lanes run on clocks of their own, as do lanes without ties: nothing on them depends on other
// lanes.
int64_t Recurrence::run() {
  stations_.assign(static_cast<size_t>(stages_ * lanes_), Station{});
  used_tokens_.assign(static_cast<size_t>(lanes_), 0);
  finished_.assign(static_cast<size_t>(lanes_), 0);
  ends_ns_.assign(static_cast<size_t>(lanes_), 0);
  events_.clear();
  waiting_.clear();
  woken_.clear();
  list_lanes();
  weights_.resize(static_cast<size_t>(stages_) * lane_micro_batches_.size());
  for (int s = 0; s < stages_ * lanes_; ++s) {
    stations_[static_cast<size_t>(s)].stage = s / lanes_;
    stations_[static_cast<size_t>(s)].lane = s % lanes_;
  }
  for (size_t u = 0; u < micro_batches_.size(); ++u) {
    SLUICE_ASSERT(micro_batches_[u].tokens <= credit_tokens_,
                  base::text("micro-batch ", u, " takes ", micro_batches_[u].tokens,
                             " tokens, a lane's credit is ", credit_tokens_));
    for (int stage = 0; stage < stages_; ++stage) {
      const MicroBatchTable::Cells& cells = micro_batches_[u].cells[stage];
      for (Station& station : stations_of(stage, static_cast<int>(u))) {
        station.remaining_ns += cells.all_ns();
        station.path_ns += cells.forward_ns + cells.backward_input_ns;
      }
    }
  }
  for (int lane = 0; lane < lanes_; ++lane) add_way_down(lane);
  for (int first = 0; first < lanes_ && !late_;) {
    int end = first + 1;
    while (tied_[static_cast<size_t>(end) - 1] != 0) ++end;
    tied_run_ = end > first + 1;
    if (tied_run_) rounds_ = Recurrence().schedule(find_rounds(first, end), 1, credit_tokens_);
    run_lanes(first, end);
    std::fill(ends_ns_.begin() + first, ends_ns_.begin() + end, now_ns_);
    first = end;
  }
  for (const Unit& micro_batch : micro_batches_)
    SLUICE_ASSERT(late_ || micro_batch.unfinished_stages == 0, "the pipeline stopped early");
  return *std::ranges::max_element(ends_ns_);
}

// Gives each micro-batch of tied lanes its round. Returns the rounds as micro-batches of one lane, with their
// longest cells and most tokens.
MicroBatchTable Recurrence::find_rounds(int first_lane, int end_lane) {
  MicroBatchTable rounds(stages_);
  std::vector<int> reached(static_cast<size_t>(end_lane - first_lane), 0);
  for (Unit& micro_batch : micro_batches_) {
    if (micro_batch.first_lane < first_lane || micro_batch.first_lane >= end_lane) continue;
    const auto first = reached.begin() + (micro_batch.first_lane - first_lane);
    micro_batch.round = *std::max_element(first, first + micro_batch.lanes);
    std::fill_n(first, micro_batch.lanes, micro_batch.round + 1);
    if (micro_batch.round == rounds.micro_batches()) {
      rounds.resize(micro_batch.round + 1);
      rounds.head(micro_batch.round) = {.fused = true,
                                        .first_backward_stage = micro_batch.first_backward_stage};
    }
    MicroBatchTable::Head& head = rounds.head(micro_batch.round);
    head.tokens = std::max(head.tokens, micro_batch.tokens);
    head.fused = head.fused && micro_batch.fused;
    const std::span<MicroBatchTable::Cells> row = rounds.row(micro_batch.round);
    for (size_t stage = 0; stage < row.size(); ++stage) {
      MicroBatchTable::Cells& longest = row[stage];
      const MicroBatchTable::Cells& cells = micro_batch.cells[stage];
      const int64_t fused_ns = micro_batch.fused ? cells.backward_weight_ns : 0;
      longest.forward_ns = std::max(longest.forward_ns, cells.forward_ns);
      longest.backward_input_ns = std::max(longest.backward_input_ns, cells.backward_input_ns + fused_ns);
      longest.backward_weight_ns = std::max(longest.backward_weight_ns, cells.backward_weight_ns - fused_ns);
      longest.transfer_ns = std::max(longest.transfer_ns, cells.transfer_ns);
    }
  }
  for (Unit& micro_batch : micro_batches_) {
    if (micro_batch.first_lane >= first_lane && micro_batch.first_lane < end_lane)
      micro_batch.last = micro_batch.round + 1 == rounds.micro_batches();
  }
  return rounds;
}

void Recurrence::run_lanes(int first_lane, int end_lane) {
  now_ns_ = 0;
  for (int lane = first_lane; lane < end_lane; ++lane) try_start(stations_[static_cast<size_t>(lane)]);
  while (!events_.empty() && !late_) {
    now_ns_ = events_.first_ns();
    while (!events_.empty() && events_.first_ns() == now_ns_) {
      while (!events_.empty() && events_.first_ns() == now_ns_) apply(events_.pop());
      if (!waiting_.empty()) start_transfers();  // transfers that take no time arrive now
    }
    start_woken();
  }
}

// A micro-batch enters if it is next on all its lanes and its tokens fit the credit of each.
bool Recurrence::admissible(int micro_batch) const {
  const Unit& of = at(micro_batch);
  for (int lane = of.first_lane; lane < of.first_lane + of.lanes; ++lane) {
    if (micro_batch_of(lane, stations_[static_cast<size_t>(lane)].forwards_started) != micro_batch)
      return false;
    if (used_tokens_[static_cast<size_t>(lane)] + of.tokens > credit_tokens_) return false;
  }
  return true;
}

// Whether the next micro-batch lacks credit and `micro_batch` is the first that will return some.
bool Recurrence::credit_waits_for(int micro_batch) const {
  const Station& first = stations_[static_cast<size_t>(at(micro_batch).first_lane)];
  const bool oldest = micro_batch == micro_batch_of(first.lane, finished_[static_cast<size_t>(first.lane)]);
  if (!oldest || first.forwards_started == micro_batches_of(first.lane)) return false;
  const Unit& next = at(micro_batch_of(first.lane, first.forwards_started));
  return used_tokens_[static_cast<size_t>(first.lane)] + next.tokens > credit_tokens_;
}

Recurrence::Choice Recurrence::choose_of_lane(const Station& station) {
  const bool weight_ready = station.weights_started < station.weights_ready;
  const int oldest_weight = weight_ready ? weight(station, station.weights_started) : -1;
  if (station.backwards_started < station.backwards_ready) {
    const int micro_batch = micro_batch_of(station.lane, station.backwards_started);
    if (!fused(station.stage, micro_batch)) return {Kind::kBackwardInput, micro_batch};
    if (weight_ready) return {Kind::kBackwardWeight, oldest_weight};
    return {Kind::kBackward, micro_batch};
  }
  if (station.stage > 0 && weight_ready && credit_waits_for(oldest_weight))
    return {Kind::kBackwardWeight, oldest_weight};
  if (station.forwards_started < station.forwards_ready) {
    const int micro_batch = micro_batch_of(station.lane, station.forwards_started);
    const bool turns_fused = station.stage + 1 == stages_ && fused(station.stage, micro_batch);
    if (turns_fused && weight_ready) return {Kind::kBackwardWeight, oldest_weight};
    if (station.stage > 0 || admissible(micro_batch)) return {Kind::kForward, micro_batch};
  }
  if (weight_ready) return {Kind::kBackwardWeight, oldest_weight};
  return {};
}

// The lane's next cell in the order of the rounds, if it is ready.
Recurrence::Choice Recurrence::choose_of_rounds(Station& station) {
  const std::vector<Cell>& cells = rounds_.cells[static_cast<size_t>(station.stage)].front();
  for (; station.rounds_cells < cells.size(); ++station.rounds_cells) {
    const Cell& cell = cells[station.rounds_cells];
    const auto next = [&](int started) {  // -1: it has been, or its lane has none of that round
      const int micro_batch =
          started < micro_batches_of(station.lane) ? micro_batch_of(station.lane, started) : -1;
      return micro_batch >= 0 && at(micro_batch).round == cell.micro_batch ? micro_batch : -1;
    };
    if (cell.kind == cost::CellKind::kForward) {
      const int micro_batch = next(station.forwards_started);
      if (micro_batch < 0) continue;
      const bool arrived = station.forwards_started < station.forwards_ready;
      return arrived && (station.stage > 0 || admissible(micro_batch)) ? Choice{Kind::kForward, micro_batch}
                                                                       : Choice{};
    }
    if (cell.kind == cost::CellKind::kBackwardWeight) {
      if (station.weights_started == station.weights_ready) continue;
      const int micro_batch = weight(station, station.weights_started);
      if (at(micro_batch).round == cell.micro_batch) return {Kind::kBackwardWeight, micro_batch};
      continue;
    }
    const int micro_batch = next(station.backwards_started);
    if (micro_batch < 0) continue;
    if (station.backwards_started == station.backwards_ready) return {};
    return {fused(station.stage, micro_batch) ? Kind::kBackward : Kind::kBackwardInput, micro_batch};
  }
  return {};
}

// A micro-batch of several lanes starts when all of them are free and choose it. Consider the first cell in
// the order of the rounds that has not started. Once it is ready, each of its lanes chooses it, so some lane
// can always start a cell.
void Recurrence::try_start(Station& station) {
  if (station.busy) return;
  const Choice choice = choose(station);
  if (choice.unit < 0) return;
  if (at(choice.unit).lanes > 1) {
    for (Station& other : stations_of(station.stage, choice.unit)) {
      if (&other == &station) continue;
      if (other.busy) return;
      const Choice of_other = choose(other);
      if (of_other.unit != choice.unit || of_other.kind != choice.kind) return;
    }
  }
  start(station.stage, choice);
}

namespace {

constexpr cost::CellKind kCellKinds[] = {cost::CellKind::kForward, cost::CellKind::kBackwardInput,
                                         cost::CellKind::kBackward, cost::CellKind::kBackwardWeight};

}  // namespace

void Recurrence::start(int stage, const Choice& choice) {
  const MicroBatchTable::Cells& cell = at(choice.unit).cells[stage];
  int64_t duration_ns = 0, path_ns = 0;
  int Station::*started = nullptr;
  switch (choice.kind) {
    case Kind::kForward:
      path_ns = duration_ns = cell.forward_ns;
      started = &Station::forwards_started;
      break;
    case Kind::kBackwardWeight:
      duration_ns = cell.backward_weight_ns;
      started = &Station::weights_started;
      break;
    default:
      path_ns = duration_ns = cell.backward_input_ns;
      if (choice.kind == Kind::kBackward) duration_ns += cell.backward_weight_ns;
      started = &Station::backwards_started;
  }
  const bool admits = stage == 0 && choice.kind == Kind::kForward;
  for (Station& station : stations_of(stage, choice.unit)) {
    const bool on_path = choice.kind != Kind::kBackwardWeight;
    const int64_t least_ns = on_path ? std::max(station.remaining_ns, station.path_ns) : station.remaining_ns;
    late_ = late_ || least_ns > limit_ns_ - now_ns_;
    station.remaining_ns -= duration_ns;
    station.path_ns -= path_ns;
    station.busy = true;
    ++(station.*started);
    int64_t& used_tokens = used_tokens_[static_cast<size_t>(station.lane)];
    if (admits) used_tokens += at(choice.unit).tokens;
    if (record_ == nullptr) continue;
    record_->peak_tokens = std::max(record_->peak_tokens, used_tokens);
    record_->cells[static_cast<size_t>(stage)][static_cast<size_t>(station.lane)].push_back(
        {kCellKinds[static_cast<size_t>(choice.kind)], choice.unit, now_ns_, now_ns_ + duration_ns});
  }
  push(now_ns_ + duration_ns, choice.kind, stage, choice.unit);
}

void Recurrence::push(int64_t time_ns, Kind kind, int stage, int micro_batch) {
  events_.push({.time_ns = time_ns, .unit = micro_batch, .stage = static_cast<int16_t>(stage), .kind = kind});
}

void Recurrence::apply(const Event& event) {
  const int stage = event.stage;
  const int unit = event.unit;
  const bool last_stage = stage + 1 == stages_;
  const int first_backward_stage = at(unit).first_backward_stage;
  const bool turns = last_stage && stage >= first_backward_stage;
  for (Station& station : stations_of(stage, unit)) {
    switch (event.kind) {
      case Kind::kUp: ++station.forwards_ready; break;
      case Kind::kDown: ++station.backwards_ready; break;
      case Kind::kForward:
        station.busy = false;
        if (turns) ++station.backwards_ready;
        break;
      case Kind::kBackwardInput:
        station.busy = false;
        weight(station, station.weights_ready++) = unit;
        break;
      case Kind::kBackward:
      case Kind::kBackwardWeight: station.busy = false;
    }
  }
  wake(stage, unit);
  if (event.kind == Kind::kForward && !last_stage) send(Kind::kUp, stage, unit);
  const bool backward = event.kind == Kind::kBackwardInput || event.kind == Kind::kBackward;
  if (backward && stage > first_backward_stage) send(Kind::kDown, stage, unit);
  const bool ends_here = event.kind == Kind::kForward && last_stage && !turns;
  if (ends_here || event.kind == Kind::kBackward || event.kind == Kind::kBackwardWeight) finish(stage, unit);
}

void Recurrence::send(Kind kind, int stage, int micro_batch) {
  const Waiting transfer{.ready_ns = now_ns_, .unit = micro_batch, .stage = stage, .kind = kind};
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), transfer), transfer);
}

void Recurrence::start_transfers() {
  const bool in_order = lanes_ > 1;
  if (in_order) {
    for (Waiting& transfer : waiting_) {
      for (const Station& station : stations_of(transfer.stage, transfer.unit)) {
        transfer.ready_ns =
            std::max(transfer.ready_ns, station.last_arrival_ns[transfer.kind == Kind::kUp ? 0 : 1]);
      }
    }
    if (waiting_.size() > 1) std::sort(waiting_.begin(), waiting_.end());
  }
  still_.clear();
  for (const Waiting& transfer : waiting_) {
    if ((in_order && is_behind(transfer)) || !start_transfer(transfer)) still_.push_back(transfer);
  }
  std::swap(waiting_, still_);
}

// Whether an older micro-batch's transfer waits for the same way on some of the same lanes.
bool Recurrence::is_behind(const Waiting& transfer) const {
  const Unit& own = at(transfer.unit);
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& other) {
    const Unit& older = at(other.unit);
    return other.unit < transfer.unit && other.stage == transfer.stage && other.kind == transfer.kind &&
           older.first_lane < own.first_lane + own.lanes && own.first_lane < older.first_lane + older.lanes;
  });
}

// Starts the transfer if its stream is free at both ends on all of the micro-batch's lanes.
bool Recurrence::start_transfer(const Waiting& transfer) {
  const size_t direction = transfer.kind == Kind::kUp ? 0 : 1;
  const int receiver = transfer.kind == Kind::kUp ? transfer.stage + 1 : transfer.stage - 1;
  for (const int stage : {transfer.stage, receiver}) {
    for (const Station& station : stations_of(stage, transfer.unit)) {
      if (station.stream_free_ns[direction] > now_ns_) return false;
    }
  }
  const int64_t end_ns = now_ns_ + at(transfer.unit).cells[std::min(transfer.stage, receiver)].transfer_ns;
  for (const int stage : {transfer.stage, receiver}) {
    for (Station& station : stations_of(stage, transfer.unit)) station.stream_free_ns[direction] = end_ns;
  }
  for (Station& station : stations_of(transfer.stage, transfer.unit))
    station.last_arrival_ns[direction] = end_ns;
  push(end_ns, transfer.kind, receiver, transfer.unit);
  return true;
}

void Recurrence::finish(int /*stage*/, int micro_batch) {
  Unit& of = micro_batches_[static_cast<size_t>(micro_batch)];
  if (--of.unfinished_stages > 0) return;
  for (int lane = of.first_lane; lane < of.first_lane + of.lanes; ++lane) {
    used_tokens_[static_cast<size_t>(lane)] -= of.tokens;
    int& finished = finished_[static_cast<size_t>(lane)];
    while (finished < micro_batches_of(lane) && at(micro_batch_of(lane, finished)).unfinished_stages == 0)
      ++finished;
  }
  wake(0, micro_batch);
}

// A cell can become startable only by an event on one of its lanes, never by the start of another cell.
void Recurrence::wake(int stage, int micro_batch) {
  for (Station& station : stations_of(stage, micro_batch)) {
    if (!station.awake) woken_.push_back(&station);
    station.awake = true;
  }
}

void Recurrence::start_woken() {
  if (woken_.size() > 1) std::sort(woken_.begin(), woken_.end());
  for (Station* station : woken_) {
    station->awake = false;
    try_start(*station);
  }
  woken_.clear();
}

PipelineSchedule schedule_pipeline(const PipelineLoad& load) {
  MicroBatchTable table(load.stages);
  for (const TimedMicroBatch& micro_batch : load.micro_batches) table.append(micro_batch);
  return Recurrence().schedule(table, load.lanes, load.credit_tokens);
}

}  // namespace sluice::schedule
