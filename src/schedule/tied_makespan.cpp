#include "schedule/tied_makespan.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/text.h"

namespace sluice::schedule {

void TiedUnits::append(const TimedUnit& unit) {
  first_lane.push_back(unit.first_lane);
  lanes.push_back(unit.lanes);
  TimedUnit single = unit;
  single.lanes = 1;
  table.append(single);
}

int64_t TiedMakespan::of(const TiedUnits& units, int lanes, int64_t credit_tokens, int64_t limit_ns) {
  units_ = &units;
  stages_ = units.table.stages();
  lanes_ = lanes;
  credit_tokens_ = credit_tokens;
  limit_ns_ = limit_ns;
  reset();
  for (int lane = 0; lane < lanes_; ++lane) try_start(lane);
  while (!events_.empty() && !late_) {
    now_ns_ = events_.front().time_ns;
    while (!events_.empty() && events_.front().time_ns == now_ns_) {
      while (!events_.empty() && events_.front().time_ns == now_ns_) {
        const Event event = events_.front();
        std::pop_heap(events_.begin(), events_.end(), std::greater<>());
        events_.pop_back();
        apply(event);
      }
      if (!waiting_.empty()) start_transfers();  // one that takes no time arrives now
    }
    start_woken();
  }
  if (late_ || now_ns_ > limit_ns_) return kLate;
  for (const int stages : unfinished_stages_) SLUICE_ASSERT(stages == 0, "the lanes stopped early");
  return now_ns_;
}

void TiedMakespan::reset() {
  const auto units = static_cast<size_t>(units_->table.units());
  now_ns_ = 0;
  next_order_ = 0;
  late_ = false;
  all_fused_ = units > 0 && units_->table.fused(0);
  events_.clear();
  waiting_.clear();
  woken_.clear();
  rows_.resize(units);
  final_.assign(units, 1);
  unfinished_stages_.assign(units, stages_);
  used_tokens_.assign(static_cast<size_t>(lanes_), 0);
  places_.assign(static_cast<size_t>(stages_ * lanes_), Place{});
  lane_begin_.assign(static_cast<size_t>(lanes_) + 1, 0);
  for (size_t u = 0; u < units; ++u) {
    const int unit = static_cast<int>(u);
    SLUICE_ASSERT(units_->table.tokens(unit) <= credit_tokens_ && units_->table.fused(unit) == all_fused_,
                  base::text("unit ", u, " of ", units_->table.tokens(unit), " tokens"));
    rows_[u] = units_->table.row(unit).data();
    const auto first = lane_begin_.begin() + 1 + units_->first_lane[u];
    std::for_each(first, first + units_->lanes[u], [](int& count) { ++count; });
    for (int stage = 0; stage < stages_; ++stage) {
      for (Place& place : places_of(stage, unit)) place.remaining_ns += cells(unit, stage).all_ns();
    }
  }
  for (size_t lane = 0; lane < used_tokens_.size(); ++lane) lane_begin_[lane + 1] += lane_begin_[lane];
  lane_units_.resize(static_cast<size_t>(lane_begin_.back()));
  for (size_t u = 0; u < units; ++u) {
    const int first = units_->first_lane[u];
    for (int lane = first; lane < first + units_->lanes[u]; ++lane) {
      int& reached = places_[static_cast<size_t>(lane)].forwards_ready;
      if (reached > 0) final_[static_cast<size_t>(unit_of(lane, reached - 1))] = 0;
      lane_units_[static_cast<size_t>(lane_begin_[static_cast<size_t>(lane)] + reached++)] =
          static_cast<int>(u);
    }
  }
}

// A unit enters when it is next on all its lanes and its tokens fit the credit of each.
bool TiedMakespan::admissible(int unit) const {
  const auto u = static_cast<size_t>(unit);
  const int64_t room_tokens = credit_tokens_ - units_->table.tokens(unit);
  for (int lane = units_->first_lane[u]; lane < units_->first_lane[u] + units_->lanes[u]; ++lane) {
    const int started = places_[static_cast<size_t>(lane)].forwards_started;
    if (unit_of(lane, started) != unit || used_tokens_[static_cast<size_t>(lane)] > room_tokens) return false;
  }
  return true;
}

// The fused backward that ends the first stage waits for every older weight gradient there.
bool TiedMakespan::may_end(int unit) const {
  const auto u = static_cast<size_t>(unit);
  for (int lane = units_->first_lane[u]; lane < units_->first_lane[u] + units_->lanes[u]; ++lane) {
    if (places_[static_cast<size_t>(lane)].finished != units_of(lane) - 1) return false;
  }
  return true;
}

TiedMakespan::Choice TiedMakespan::choose(int place) const {
  const Place& at = places_[static_cast<size_t>(place)];
  const int stage = place / lanes_;
  const int lane = place % lanes_;
  if (at.backwards_started < at.backwards_ready) {
    const int unit = unit_of(lane, at.backwards_started);
    const bool is_fused = fused(stage, unit);
    if (!is_fused || stage > 0 || !final_[static_cast<size_t>(unit)] || may_end(unit)) {
      return {is_fused ? Kind::kBackward : Kind::kBackwardInput, unit};
    }
  }
  if (at.forwards_started < at.forwards_ready) {
    const int unit = unit_of(lane, at.forwards_started);
    if (stage > 0 || admissible(unit)) return {Kind::kForward, unit};
  }
  if (at.weights_started < at.weights_ready) {
    return {Kind::kBackwardWeight, unit_of(lane, at.weights_started)};
  }
  return {};
}

// A tied unit starts when all its lanes are free and choose it.
void TiedMakespan::try_start(int place) {
  if (places_[static_cast<size_t>(place)].busy) return;
  const Choice choice = choose(place);
  if (choice.unit < 0) return;
  const int stage = place / lanes_;
  const int first = place_of(stage, choice.unit);
  for (int other = first; other < first + units_->lanes[static_cast<size_t>(choice.unit)]; ++other) {
    if (other == place) continue;
    if (places_[static_cast<size_t>(other)].busy) return;
    const Choice of_other = choose(other);
    if (of_other.unit != choice.unit || of_other.kind != choice.kind) return;
  }
  start(stage, choice);
}

void TiedMakespan::start(int stage, const Choice& choice) {
  const UnitTable::Cells& cell = cells(choice.unit, stage);
  int64_t duration_ns = 0;
  int Place::*started = nullptr;
  switch (choice.kind) {
    case Kind::kForward:
      duration_ns = cell.forward_ns;
      started = &Place::forwards_started;
      break;
    case Kind::kBackwardWeight:
      duration_ns = cell.backward_weight_ns;
      started = &Place::weights_started;
      break;
    default:
      duration_ns = cell.backward_input_ns;
      if (choice.kind == Kind::kBackward) duration_ns += cell.backward_weight_ns;
      started = &Place::backwards_started;
  }
  for (Place& place : places_of(stage, choice.unit)) {
    late_ = late_ || place.remaining_ns > limit_ns_ - now_ns_;
    place.remaining_ns -= duration_ns;
    place.busy = true;
    ++(place.*started);
  }
  if (stage == 0 && choice.kind == Kind::kForward) {
    const auto first = used_tokens_.begin() + place_of(0, choice.unit);
    const int64_t tokens = units_->table.tokens(choice.unit);
    std::for_each(first, first + units_->lanes[static_cast<size_t>(choice.unit)],
                  [&](int64_t& used) { used += tokens; });
  }
  push(now_ns_ + duration_ns, choice.kind, stage, choice.unit);
}

void TiedMakespan::push(int64_t time_ns, Kind kind, int stage, int unit) {
  events_.push_back({.time_ns = time_ns, .order = next_order_++, .unit = unit, .stage = stage, .kind = kind});
  std::push_heap(events_.begin(), events_.end(), std::greater<>());
}

void TiedMakespan::apply(const Event& event) {
  const auto [stage, unit] = std::pair(event.stage, event.unit);
  const bool cell = event.kind != Kind::kUp && event.kind != Kind::kDown;
  for (Place& place : places_of(stage, unit)) {
    if (cell) place.busy = false;
    if (event.kind == Kind::kUp) ++place.forwards_ready;
    if (event.kind == Kind::kDown) ++place.backwards_ready;
    if (event.kind == Kind::kForward && stage + 1 == stages_) ++place.backwards_ready;
    if (event.kind == Kind::kBackwardInput) ++place.weights_ready;
  }
  wake(stage, unit);
  if (event.kind == Kind::kForward && stage + 1 < stages_) send(Kind::kUp, stage, unit);
  const bool backward = event.kind == Kind::kBackwardInput || event.kind == Kind::kBackward;
  if (backward && stage > 0) send(Kind::kDown, stage, unit);
  if (event.kind == Kind::kBackward || event.kind == Kind::kBackwardWeight) finish(stage, unit);
}

void TiedMakespan::send(Kind kind, int stage, int unit) {
  const Waiting transfer{.ready_ns = now_ns_, .unit = unit, .stage = stage, .kind = kind};
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), transfer), transfer);
}

// A transfer is ready when those before it on its lanes have arrived.
void TiedMakespan::start_transfers() {
  for (Waiting& transfer : waiting_) {
    for (const Place& place : places_of(transfer.stage, transfer.unit)) {
      transfer.ready_ns =
          std::max(transfer.ready_ns, place.last_arrival_ns[transfer.kind == Kind::kUp ? 0 : 1]);
    }
  }
  if (waiting_.size() > 1) std::sort(waiting_.begin(), waiting_.end());
  still_.clear();
  for (const Waiting& transfer : waiting_) {
    if (is_behind(transfer) || !start_transfer(transfer)) still_.push_back(transfer);
  }
  std::swap(waiting_, still_);
}

bool TiedMakespan::is_behind(const Waiting& transfer) const {
  const auto first = [&](int unit) { return units_->first_lane[static_cast<size_t>(unit)]; };
  const auto end = [&](int unit) { return first(unit) + units_->lanes[static_cast<size_t>(unit)]; };
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& other) {
    return other.unit < transfer.unit && other.stage == transfer.stage && other.kind == transfer.kind &&
           first(other.unit) < end(transfer.unit) && first(transfer.unit) < end(other.unit);
  });
}

// If its stream is free at both ends, on all lanes of the unit.
bool TiedMakespan::start_transfer(const Waiting& transfer) {
  const size_t direction = transfer.kind == Kind::kUp ? 0 : 1;
  const int receiver = transfer.kind == Kind::kUp ? transfer.stage + 1 : transfer.stage - 1;
  for (const int stage : {transfer.stage, receiver}) {
    for (const Place& place : places_of(stage, transfer.unit)) {
      if (place.stream_free_ns[direction] > now_ns_) return false;
    }
  }
  const int64_t end_ns = now_ns_ + cells(transfer.unit, std::min(transfer.stage, receiver)).transfer_ns;
  for (const int stage : {transfer.stage, receiver}) {
    for (Place& place : places_of(stage, transfer.unit)) place.stream_free_ns[direction] = end_ns;
  }
  for (Place& place : places_of(transfer.stage, transfer.unit)) place.last_arrival_ns[direction] = end_ns;
  push(end_ns, transfer.kind, receiver, transfer.unit);
  return true;
}

void TiedMakespan::finish(int stage, int unit) {
  for (Place& place : places_of(stage, unit)) ++place.finished;
  if (--unfinished_stages_[static_cast<size_t>(unit)] > 0) return;
  const auto first = used_tokens_.begin() + place_of(0, unit);
  const int64_t tokens = units_->table.tokens(unit);
  std::for_each(first, first + units_->lanes[static_cast<size_t>(unit)],
                [&](int64_t& used) { used -= tokens; });
  wake(0, unit);
}

void TiedMakespan::wake(int stage, int unit) {
  int at = place_of(stage, unit);
  for (Place& place : places_of(stage, unit)) {
    if (!place.awake) woken_.push_back(at);
    place.awake = true;
    ++at;
  }
}

void TiedMakespan::start_woken() {
  if (woken_.size() > 1) std::sort(woken_.begin(), woken_.end());
  for (const int place : woken_) {
    places_[static_cast<size_t>(place)].awake = false;
    try_start(place);
  }
  woken_.clear();
}

}  // namespace sluice::schedule
