#include "session/phased_sampler.h"

#include <algorithm>

namespace sluice::session {

void PhasedSampler::enter_due() {
  if (phase_ + 1 == phases_.size() || step() < phases_[phase_ + 1].first_step) return;
  SamplerPhase& next = phases_[phase_ + 1];
  if (next.goes_on) {
    next.batches->restore(state());
  } else {
    next.batches->begin_at(step());
  }
  ++phase_;
}

corpus::Batch PhasedSampler::next() {
  enter_due();
  return phases_[phase_].batches->next();
}

void PhasedSampler::skip(int64_t steps) {
  for (const int64_t end = step() + steps; step() < end;) {
    enter_due();
    const bool last = phase_ + 1 == phases_.size();
    const int64_t stop = last ? end : std::min(end, phases_[phase_ + 1].first_step);
    phases_[phase_].batches->skip(stop - step());
  }
}

void PhasedSampler::restore(const corpus::SamplerState& state, const std::string& where) {
  phase_ = 0;
  while (phase_ + 1 < phases_.size() && phases_[phase_ + 1].first_step < state.step) ++phase_;
  phases_[phase_].batches->restore(state, where);
}

}  // namespace sluice::session
