#include "schedule/makespan.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace sluice::schedule {
namespace {

constexpr size_t kUp = 0;
constexpr size_t kDown = 1;

}  // namespace

void UnitTable::resize(int units) {
  tokens_.resize(static_cast<size_t>(units));
  fused_.resize(static_cast<size_t>(units));
  cells_.resize(static_cast<size_t>(units) * static_cast<size_t>(stages_));
}

void UnitTable::append(const TimedUnit& unit) {
  SLUICE_ASSERT(unit.lanes == 1 && unit.forward_ns.size() == static_cast<size_t>(stages_),
                base::text("a unit of ", unit.lanes, " lanes and ", unit.forward_ns.size(), " stages"));
  resize(units() + 1);
  tokens(units() - 1) = unit.credit();
  set_fused(units() - 1, unit.fused);
  const std::span<Cells> cells = row(units() - 1);
  for (size_t s = 0; s < cells.size(); ++s) {
    cells[s] = {unit.forward_ns[s], unit.backward_input_ns[s], unit.backward_weight_ns[s],
                s + 1 < cells.size() ? unit.transfer_ns[s] : 0};
  }
}

void Makespan::reset() {
  const auto stages = static_cast<size_t>(table_->stages());
  const auto units = static_cast<size_t>(units_);
  now_ns_ = used_tokens_ = 0;
  finished_ = waiting_ = 0;
  stages_.assign(stages, Stage{});
  stages_[0].forwards_ready = units_;
  for (const size_t direction : {kUp, kDown}) {
    links_[direction].assign(stages - 1, Link{});
    ready_ns_[direction].resize((stages - 1) * units);
  }
  for (size_t s = 0; s < stages; ++s) {
    for (int place = 0; place < units_; ++place) stages_[s].remaining_ns += cells(place, s).all_ns();
  }
}

void Makespan::read(const UnitTable& table, std::span<const int> order, int64_t credit_tokens) {
  table_ = &table;
  credit_tokens_ = credit_tokens;
  units_ = static_cast<int>(order.size());
  rows_.clear();
  tokens_.clear();
  fused_.clear();
  for (const int unit : order) {
    rows_.push_back(table.row(unit).data());
    tokens_.push_back(table.tokens(unit));
    fused_.push_back(table.fused(unit));
    SLUICE_ASSERT(tokens_.back() <= credit_tokens, base::text("a unit of ", tokens_.back(), " tokens"));
  }
}

int64_t Makespan::at_least_ns(const UnitTable& table, std::span<const int> order, int64_t credit_tokens) {
  read(table, order, credit_tokens);
  return least_ns();
}

int64_t Makespan::of(const UnitTable& table, std::span<const int> order, int64_t credit_tokens,
                     int64_t limit_ns) {
  read(table, order, credit_tokens);
  limit_ns_ = limit_ns;
  if (table.stages() == 1) {  // one cell after the other
    int64_t sum_ns = 0;
    for (const UnitTable::Cells* row : rows_) sum_ns += row->all_ns();
    return sum_ns > limit_ns ? kLate : sum_ns;
  }
  if (limit_ns < kLate - 1 && least_ns() > limit_ns) return kLate;
  reset();
  while (true) {
    if (!start_cells()) return kLate;
    const int64_t next_ns = next_event_ns();
    if (next_ns == kNever) break;
    now_ns_ = next_ns;
    apply_events();
    if (waiting_ > 0) start_transfers();
  }
  SLUICE_ASSERT(finished_ == units_, "the pipeline stopped early");
  return now_ns_ > limit_ns ? kLate : now_ns_;
}

int64_t Makespan::least_ns() {
  if (units_ == 0) return 0;
  const int64_t last_finish_ns = pass_stages();
  const auto stages = static_cast<size_t>(table_->stages());
  std::vector<int64_t>& tails_ns = heads_ns_;
  tails_ns.assign(stages, 0);
  int64_t least_ns = last_finish_ns;
  for (size_t i = static_cast<size_t>(units_); i-- > 0;) {
    const UnitTable::Cells* row = rows_[i];
    int64_t tail_ns = tails_ns[0] += row[0].backward_input_ns + row[0].backward_weight_ns;
    for (size_t s = 1; s < stages; ++s) {
      tail_ns = tails_ns[s] =
          std::max(tails_ns[s], tail_ns + row[s - 1].transfer_ns) + row[s].backward_input_ns;
    }
    least_ns = std::max(least_ns, reached_ns_[i] + tail_ns);
    if (i + 1 == static_cast<size_t>(units_)) {
      least_ns = std::max(least_ns, turned_ns_ + tail_ns - row[stages - 1].backward_input_ns);
    }
  }
  return least_ns;
}

// One unit after the other through all stages and back, each stage in the order of injection, forwards and
// input gradients each on their own; together they occupy the first stage and, from its first cell on, the
// last.
int64_t Makespan::pass_stages() {
  const auto stages = static_cast<size_t>(table_->stages());
  const size_t last = stages - 1;
  heads_ns_.assign(stages, 0);
  returns_ns_.assign(stages, 0);
  reached_ns_.resize(static_cast<size_t>(units_));
  finished_ns_.resize(static_cast<size_t>(units_));
  int64_t first_ns = 0, last_ns = 0, used_tokens = 0, finished_ns = 0;
  turned_ns_ = 0;
  size_t oldest = 0;  // in flight when unit i begins
  for (size_t i = 0; i < reached_ns_.size(); ++i) {
    const UnitTable::Cells* row = rows_[i];
    for (used_tokens += tokens_[i]; used_tokens > credit_tokens_; ++oldest) {
      used_tokens -= tokens_[oldest];
      heads_ns_[0] = std::max(heads_ns_[0], finished_ns_[oldest]);
    }
    int64_t end_ns = heads_ns_[0] += row[0].forward_ns;
    for (size_t s = 1; s < stages; ++s) {
      end_ns = heads_ns_[s] = std::max(heads_ns_[s], end_ns + row[s - 1].transfer_ns) + row[s].forward_ns;
    }
    reached_ns_[i] = end_ns;
    if (i == 0) turned_ns_ = last_ns = end_ns - row[last].forward_ns;
    turned_ns_ += row[last].forward_ns + row[last].backward_input_ns;
    last_ns += row[last].all_ns();
    first_ns += row[0].all_ns();
    end_ns = returns_ns_[last] =
        std::max(std::max(returns_ns_[last], end_ns) + row[last].backward_input_ns, turned_ns_);
    for (size_t s = last; s-- > 0;) {
      end_ns = returns_ns_[s] =
          std::max(returns_ns_[s], end_ns + row[s].transfer_ns) + row[s].backward_input_ns;
    }
    finished_ns = std::max({finished_ns, end_ns + row[0].backward_weight_ns, first_ns, last_ns});
    finished_ns_[i] = finished_ns;
  }
  return finished_ns;
}

bool Makespan::start_cells() {
  for (size_t s = 0; s < stages_.size(); ++s) {
    if (stages_[s].running == Running::kNothing && !start_cell(s)) return false;
  }
  return true;
}

bool Makespan::credit_waits() const {
  const auto next = static_cast<size_t>(stages_[0].forwards_started);
  return next < tokens_.size() && used_tokens_ + tokens_[next] > credit_tokens_;
}

// The policy of pipeline_schedule.h. False when the stage cannot end in time.
bool Makespan::start_cell(size_t s) {
  Stage& stage = stages_[s];
  const bool weight_ready = stage.weights_started < stage.weights_ready;
  const bool backward_ready = stage.backwards_started < stage.backwards_ready;
  const bool fused = backward_ready && is_fused(s, stage.backwards_started);
  if (backward_ready && (!fused || stage.finished == stage.backwards_started)) {
    const UnitTable::Cells& cell = cells(stage.backwards_started++, s);
    if (!fused) return run(s, Running::kBackwardInput, cell.backward_input_ns);
    ++stage.weights_ready;
    ++stage.weights_started;
    return run(s, Running::kBackward, cell.backward_input_ns + cell.backward_weight_ns);
  }
  const bool urgent =
      fused || (s > 0 && weight_ready && stage.weights_started == finished_ && credit_waits());
  if (!urgent && stage.forwards_started < stage.forwards_ready && (s > 0 || !credit_waits())) {
    const int place = stage.forwards_started++;
    if (s == 0) used_tokens_ += tokens_[static_cast<size_t>(place)];
    return run(s, Running::kForward, cells(place, s).forward_ns);
  }
  if (!weight_ready) return true;
  const int place = stage.weights_started++;
  return run(s, Running::kBackwardWeight, cells(place, s).backward_weight_ns);
}

bool Makespan::run(size_t s, Running what, int64_t duration_ns) {
  Stage& stage = stages_[s];
  if (stage.remaining_ns > limit_ns_ - now_ns_) return false;
  stage.remaining_ns -= duration_ns;
  stage.running = what;
  stage.end_ns = now_ns_ + duration_ns;
  return true;
}

int64_t Makespan::next_event_ns() const {
  int64_t next_ns = kNever;
  for (const Stage& stage : stages_) next_ns = std::min(next_ns, stage.end_ns);
  for (const Link& link : links_[kUp]) next_ns = std::min(next_ns, link.arrival_ns);
  for (const Link& link : links_[kDown]) next_ns = std::min(next_ns, link.arrival_ns);
  return next_ns;
}

void Makespan::apply_events() {
  for (size_t s = 0; s < stages_.size(); ++s) {
    if (stages_[s].end_ns == now_ns_) end_cell(s);
  }
  for (size_t b = 0; b < links_[kUp].size(); ++b) {
    if (links_[kUp][b].arrival_ns == now_ns_) arrive(kUp, b);
    if (links_[kDown][b].arrival_ns == now_ns_) arrive(kDown, b);
  }
}

void Makespan::end_cell(size_t s) {
  Stage& stage = stages_[s];
  const Running what = stage.running;
  stage.running = Running::kNothing;
  stage.end_ns = kNever;
  if (what == Running::kBackwardWeight) {
    finish(s);
  } else if (what == Running::kBackward) {
    if (s > 0) send(kDown, s - 1);
    finish(s);
  } else if (what == Running::kBackwardInput) {
    ++stage.weights_ready;
    if (s > 0) send(kDown, s - 1);
  } else if (s + 1 < stages_.size()) {
    send(kUp, s);
  } else {
    ++stage.backwards_ready;
  }
}

// A stage finishes units in order, so the oldest is done everywhere when every stage has passed it.
void Makespan::finish(size_t s) {
  ++stages_[s].finished;
  int everywhere = units_;
  for (const Stage& stage : stages_) everywhere = std::min(everywhere, stage.finished);
  for (; finished_ < everywhere; ++finished_) used_tokens_ -= tokens_[static_cast<size_t>(finished_)];
}

void Makespan::arrive(size_t direction, size_t boundary) {
  links_[direction][boundary].arrival_ns = kNever;
  ++(direction == kUp ? stages_[boundary + 1].forwards_ready : stages_[boundary].backwards_ready);
}

void Makespan::send(size_t direction, size_t boundary) {
  Link& link = links_[direction][boundary];
  ready_ns_[direction][boundary * static_cast<size_t>(units_) + static_cast<size_t>(link.sent)] = now_ns_;
  ++link.sent;
  ++waiting_;
}

void Makespan::start_transfers() {
  for (const size_t direction : {kUp, kDown}) {
    while (start_transfer(direction)) --waiting_;
  }
}

// Of the transfers whose streams are free at both ends the one that has been ready longest, then the older
// unit. False when there is none.
bool Makespan::start_transfer(size_t direction) {
  const Link* best = nullptr;
  std::pair<int64_t, int> best_key;
  for (size_t b = 0; b < links_[direction].size(); ++b) {
    const Link& link = links_[direction][b];
    if (link.started == link.sent || link.arrival_ns != kNever) continue;
    if (stages_[b].stream_free_ns[direction] > now_ns_ ||
        stages_[b + 1].stream_free_ns[direction] > now_ns_) {
      continue;
    }
    const std::pair key(
        ready_ns_[direction][b * static_cast<size_t>(units_) + static_cast<size_t>(link.started)],
        link.started);
    if (best != nullptr && best_key <= key) continue;
    best = &link;
    best_key = key;
  }
  if (best == nullptr) return false;
  const auto boundary = static_cast<size_t>(best - links_[direction].data());
  Link& link = links_[direction][boundary];
  const int64_t end_ns = now_ns_ + cells(link.started, boundary).transfer_ns;
  ++link.started;
  stages_[boundary].stream_free_ns[direction] = end_ns;
  stages_[boundary + 1].stream_free_ns[direction] = end_ns;
  if (end_ns == now_ns_) {
    arrive(direction, boundary);  // the next one may follow at once
  } else {
    link.arrival_ns = end_ns;
  }
  return true;
}

}  // namespace sluice::schedule
