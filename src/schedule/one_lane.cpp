#include "schedule/one_lane.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "base/never.h"
#include "base/text.h"

namespace sluice::schedule {
namespace {

constexpr cost::CellKind kKindOfCell[] = {cost::CellKind::kForward, cost::CellKind::kBackwardInput,
                                          cost::CellKind::kBackward, cost::CellKind::kBackwardWeight};

}  // namespace

void OneWay::reset(size_t stages) {
  free_ns_.assign(stages, 0);
  waiting_.clear();
  changed_ = false;
}

void OneWay::send(int64_t now_ns, int stage, int unit) {
  auto at = waiting_.end();
  while (at != waiting_.begin() && (at - 1)->ready_ns == now_ns && (at - 1)->unit > unit) --at;
  waiting_.insert(at, {.ready_ns = now_ns, .unit = unit, .stage = stage});
  changed_ = true;
}

int64_t OneLane::makespan_ns(const MicroBatchTable& table, std::span<const int> order, int64_t credit_tokens,
                             int64_t limit_ns, PipelineSchedule* record) {
  record_ = record;
  limit_ns_ = limit_ns;
  read(table, order, credit_tokens);
  add_cells();
  try_start(0);
  while (!events_.empty() && !late_) {
    now_ns_ = events_.first_ns();
    while (!events_.empty() && events_.first_ns() == now_ns_) {
      while (!events_.empty() && events_.first_ns() == now_ns_) apply(events_.pop());
      start_transfers();  // those that take no time arrive now
    }
    start_woken();
  }
  SLUICE_ASSERT(late_ || finished_ == units_.size(), "the pipeline of one lane stopped early");
  return late_ || now_ns_ > limit_ns ? base::kNever : now_ns_;
}

void OneLane::read(const MicroBatchTable& table, std::span<const int> order, int64_t credit_tokens) {
  const int stages = table.stages();
  SLUICE_ASSERT(stages <= std::numeric_limits<int16_t>::max(), base::text(stages, " stages"));
  credit_tokens_ = credit_tokens;
  now_ns_ = used_tokens_ = 0;
  finished_ = 0;
  late_ = false;
  units_.clear();
  for (const int row : order) {
    const MicroBatchTable::Head& head = table.head(row);
    SLUICE_ASSERT(head.tokens <= credit_tokens, base::text("micro-batch ", row, " takes ", head.tokens,
                                                           " tokens, the lane's credit is ", credit_tokens));
    // The last stage sends no gradient where it alone has backwards or none has.
    units_.push_back({.cells = table.row(row).data(),
                      .first_backward_stage = head.first_backward_stage,
                      .unfinished_stages = std::max(1, stages - head.first_backward_stage),
                      .fused = head.fused || head.first_backward_stage >= stages - 1,
                      .tokens = head.tokens});
  }
  if (!units_.empty()) units_.back().last = true;
  stages_.assign(static_cast<size_t>(stages), {});
  stages_.front().forwards_ready = static_cast<int>(units_.size());
  weights_.resize(stages_.size() * units_.size());
  woken_.assign((stages_.size() + 63) / 64, 0);
  events_.clear();
  up_.reset(stages_.size());
  down_.reset(stages_.size());
}

// Adds up each stage's cells, and the last gradient's way down from there.
void OneLane::add_cells() {
  for (const Unit& unit : units_) {
    for (size_t s = 0; s < stages_.size(); ++s) {
      stages_[s].remaining_ns += unit.cells[s].all_ns();
      stages_[s].path_ns += unit.cells[s].forward_ns + unit.cells[s].backward_input_ns;
    }
  }
  if (units_.empty()) return;
  const Unit& last = units_.back();
  const auto lowest = static_cast<size_t>(last.first_backward_stage);
  if (lowest >= stages_.size()) return;
  int64_t way_ns = last.cells[lowest].backward_weight_ns;
  for (size_t s = lowest + 1; s < stages_.size(); ++s) {
    way_ns += last.cells[s - 1].transfer_ns + last.cells[s - 1].backward_input_ns;
    stages_[s].path_ns += way_ns;
  }
}

void OneLane::apply(const Event& event) {
  Stage& at = stages_[static_cast<size_t>(event.stage)];
  wake(event.stage);
  if (event.kind == Kind::kUp) {
    ++at.forwards_ready;
    up_.end_one();
  } else if (event.kind == Kind::kDown) {
    ++at.backwards_ready;
    down_.end_one();
  } else {
    end_cell(event, at);
  }
}

void OneLane::end_cell(const Event& event, Stage& at) {
  at.busy = false;
  const int first_backward_stage = units_[static_cast<size_t>(event.unit)].first_backward_stage;
  if (event.kind == Kind::kForward) {
    if (event.stage + 1 < std::ssize(stages_)) return up_.send(now_ns_, event.stage, event.unit);
    if (event.stage < first_backward_stage) return finish(event.unit);
    ++at.backwards_ready;
    return;
  }
  if (event.kind == Kind::kBackwardInput) weight(event.stage, at.weights_ready++) = event.unit;
  if (event.kind != Kind::kBackwardWeight && event.stage > first_backward_stage)
    down_.send(now_ns_, event.stage, event.unit);
  if (event.kind != Kind::kBackwardInput) finish(event.unit);
}

void OneLane::start_transfers() {
  const auto end_of = [&](Kind kind, int unit, int boundary, int to) {
    const int64_t transfer_ns = units_[static_cast<size_t>(unit)].cells[boundary].transfer_ns;
    events_.push({now_ns_ + transfer_ns, unit, static_cast<int16_t>(to), kind});
    return now_ns_ + transfer_ns;
  };
  up_.start_free(now_ns_, [&](int unit, int from, int to) { return end_of(Kind::kUp, unit, from, to); });
  down_.start_free(now_ns_, [&](int unit, int, int to) { return end_of(Kind::kDown, unit, to, to); });
}

void OneLane::finish(int unit) {
  Unit& of = units_[static_cast<size_t>(unit)];
  if (--of.unfinished_stages > 0) return;
  used_tokens_ -= of.tokens;
  while (finished_ < units_.size() && units_[finished_].unfinished_stages == 0) ++finished_;
  wake(0);
}

// Stages in ascending order. A start wakes none.
void OneLane::start_woken() {
  for (size_t word = 0; word < woken_.size(); ++word) {
    for (uint64_t bits = woken_[word]; bits != 0; bits &= bits - 1)
      try_start(static_cast<int>(word * 64) + std::countr_zero(bits));
    woken_[word] = 0;
  }
}

// Whether the next micro-batch lacks credit and `unit` is the first that will return some.
bool OneLane::credit_waits_for(int unit) const {
  const auto next = static_cast<size_t>(stages_.front().forwards_started);
  return static_cast<size_t>(unit) == finished_ && next < units_.size() && !has_credit_for(next);
}

// Starts the cell that Recurrence::choose_of_lane chooses.
void OneLane::try_start(int stage) {
  const Stage& at = stages_[static_cast<size_t>(stage)];
  if (at.busy) return;
  const bool weight_ready = at.weights_started < at.weights_ready;
  const int oldest_weight = weight_ready ? weight(stage, at.weights_started) : -1;
  const auto start_weight = [&] { start(Kind::kBackwardWeight, stage, oldest_weight); };
  if (at.backwards_started < at.backwards_ready) {
    const int unit = at.backwards_started;
    if (!fused(stage, unit)) return start(Kind::kBackwardInput, stage, unit);
    return weight_ready ? start_weight() : start(Kind::kBackward, stage, unit);
  }
  if (stage > 0 && weight_ready && credit_waits_for(oldest_weight)) return start_weight();
  if (at.forwards_started < at.forwards_ready) {
    const int unit = at.forwards_started;
    const bool turns_fused = stage + 1 == std::ssize(stages_) && fused(stage, unit);
    if (turns_fused && weight_ready) return start_weight();
    if (stage > 0 || has_credit_for(static_cast<size_t>(unit))) return start(Kind::kForward, stage, unit);
  }
  if (weight_ready) start_weight();
}

void OneLane::start(Kind kind, int stage, int unit) {
  Stage& at = stages_[static_cast<size_t>(stage)];
  const Unit& of = units_[static_cast<size_t>(unit)];
  const MicroBatchTable::Cells& cell = of.cells[stage];
  const bool weight = kind == Kind::kBackwardWeight;
  const int64_t least_ns = weight ? at.remaining_ns : std::max(at.remaining_ns, at.path_ns);
  late_ = late_ || least_ns > limit_ns_ - now_ns_;
  int64_t duration_ns = cell.backward_weight_ns;
  if (kind == Kind::kForward) {
    at.path_ns -= duration_ns = cell.forward_ns;
    ++at.forwards_started;
    if (stage == 0) used_tokens_ += of.tokens;
  } else if (weight) {
    ++at.weights_started;
  } else {
    at.path_ns -= cell.backward_input_ns;
    duration_ns = cell.backward_input_ns + (kind == Kind::kBackward ? cell.backward_weight_ns : 0);
    ++at.backwards_started;
  }
  at.remaining_ns -= duration_ns;
  at.busy = true;
  if (record_ != nullptr) {
    record_->peak_tokens = std::max(record_->peak_tokens, used_tokens_);
    record_->cells[static_cast<size_t>(stage)].front().push_back(
        {kKindOfCell[static_cast<size_t>(kind)], unit, now_ns_, now_ns_ + duration_ns});
  }
  events_.push({now_ns_ + duration_ns, unit, static_cast<int16_t>(stage), kind});
}

}  // namespace sluice::schedule
