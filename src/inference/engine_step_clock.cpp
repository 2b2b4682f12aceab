#include "inference/engine_step_clock.h"

#include <algorithm>

#include "model/engine_step_rows.h"
#include "model/head_parts.h"

namespace sluice::inference {
namespace {

// Per sequence: the last stage sends the others the sampled token and its log-probability.
constexpr int64_t kToldBytes = 16;

bool is_cut(const model::Model& model, const strategy::Scheme& scheme, const cost::DecodeWork& pass) {
  return model::splits_engine_step(pass.rows, scheme.cp, model.has_states());
}

int64_t rows_of_lane(const model::Model& model, const strategy::Scheme& scheme,
                     const cost::DecodeWork& pass) {
  return is_cut(model, scheme, pass) ? cost::divide_up(pass.rows, scheme.cp) : pass.rows;
}

cost::DecodeWork of_lane(const model::Model& model, const strategy::Scheme& scheme, cost::DecodeWork pass) {
  const auto divide = [&](cost::Wide& all) { all = (all + scheme.cp - 1) / scheme.cp; };
  for (cost::DecodeWork::AttentionWork* sight : {&pass.all, &pass.windowed}) {
    divide(sight->keys);
    divide(sight->chunk_keys);
    divide(sight->pairs);
  }
  pass.rows = rows_of_lane(model, scheme, pass);
  return pass;
}

// Time that lanes exchange rows for while the layer at `position` attends in such a pass.
int64_t between_lanes_ns(const cost::CostModel& cost, const strategy::Scheme& scheme,
                         const cost::DecodeWork& pass, int level, int64_t position) {
  const model::Model& model = cost.options().model;
  const model::AttendingHeads own = model::decoding_heads(model, cost.program().kind_at(position), scheme.tp);
  const int64_t element_bytes = cost.options().memory.element_bytes;
  const int64_t width = own.width, queries = own.counts.queries, keys = own.counts.keys;
  const int64_t wide_bytes = std::max<int64_t>(4, element_bytes);
  const bool cut = is_cut(model, scheme, pass);
  const int64_t others = rows_of_lane(model, scheme, pass) * (scheme.cp - 1);
  const int64_t found = cost.exchange_ns(others * queries * (width + 1) * wide_bytes, level);
  const int64_t gathered =
      cut ? cost.exchange_ns(others * (queries + 2 * keys) * width * element_bytes, level) : 0;
  return found + gathered;
}

}  // namespace

EngineStepClock::EngineStepClock(const cost::CostModel& cost, const strategy::Scheme& scheme, int level)
    : cost_(cost), scheme_(scheme), level_(level), passes_(static_cast<size_t>(scheme.pp)) {}

// The time of all equal engine steps in `pass`.
cost::Wide EngineStepClock::of_stage(int stage, const cost::DecodeWork& pass) const {
  if (pass.rows == 0) return 0;
  const base::Interval run = cost_.stage_run(scheme_, stage);
  if (scheme_.cp == 1) return cost_.decode_ns(scheme_, run, pass);
  const base::Interval blocks = cost_.program().blocks_in(run);
  cost::Wide between_ns = 0;
  for (int64_t position = blocks.begin; position < blocks.end; ++position) {
    const model::TokenWork work = cost_.program().kind_at(position).work();
    const bool attends = work.scanned == 0 || work.attention > 0;
    between_ns += attends ? between_lanes_ns(cost_, scheme_, pass, level_, position) : 0;
  }
  return cost_.decode_ns(scheme_, run, of_lane(cost_.options().model, scheme_, pass)) +
         pass.engine_steps * between_ns;
}

// The time of all stages' simultaneous transfers at the end of a micro-step.
int64_t EngineStepClock::handed_on_ns() const {
  int64_t slowest = 0;
  for (size_t stage = 0; stage + 1 < passes_.size(); ++stage) {
    if (const int64_t rows = passes_[stage].rows; rows > 0)
      slowest = std::max(slowest, cost_.transfer_ns(scheme_, rows, level_));
  }
  if (const int64_t spoken = passes_.back().sampled_rows; spoken > 0 && scheme_.pp > 1)
    slowest = std::max(slowest, cost_.exchange_ns(kToldBytes * spoken, level_));
  return slowest;
}

void EngineStepClock::add(const cost::DecodeWork& pass) {
  passes_.push_front(pass);
  passes_.pop_back();
  cost::Wide slowest = 0;
  for (int stage = 0; stage < scheme_.pp; ++stage) {
    const cost::DecodeWork& here = passes_[static_cast<size_t>(stage)];
    slowest = std::max(slowest, of_stage(stage, here) * pass.engine_steps / here.engine_steps);
  }
  ns_ += static_cast<int64_t>(slowest) + pass.engine_steps * handed_on_ns();
}

}  // namespace sluice::inference
