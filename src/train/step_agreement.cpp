#include "train/step_agreement.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "ops/attention_count.h"

namespace sluice::train {

StepWord measured(const PreparedStep& step, const runtime::StepResult& result, int64_t unfused_before) {
  StepWord word;
  word.pulled_bytes = result.pulled_bytes;
  word.pushed_bytes = result.pushed_bytes;
  word.ring_bytes = result.exchange_bytes;
  word.share_bytes = result.share_bytes;
  word.unfused_attention = ops::unfused_attention_calls() - unfused_before;
  word.corpus_bytes = step.corpus_bytes;
  word.peak_bytes = result.peak_bytes;
  word.link_exposed_ns = result.timing.link_exposed_ns;
  word.gather_exposed_ns = result.gather_exposed_ns;
  word.overhead_ns = result.timing.overhead_ns();
  word.step_ns = result.timing.step_ns;
  return word;
}

namespace {

// Throws on all ranks if any failed to plan the upcoming step, or if their plans differ.
void require_one_plan(Control& control, const std::vector<StepWord>& words, std::exception_ptr failure) {
  std::vector<int64_t> statuses;
  for (const StepWord& word : words) statuses.push_back(word.failure);
  control.throw_if_any_failed("planning", statuses, failure);
  for (size_t other = 1; other < words.size(); ++other) {
    if (words[other].next_step == words[0].next_step && words[other].agreement == words[0].agreement)
      continue;
    const base::RunError difference(
        base::text("rank ", other, " planned step ", words[other].next_step, " otherwise than rank 0 (step ",
                   words[0].next_step, "): all ranks need the same program, configuration and corpora"));
    std::ranges::fill(statuses, difference.exit_status());
    control.throw_if_any_failed("planning", statuses, std::make_exception_ptr(difference));
  }
}

std::exception_ptr disagreement(Control& control, const std::vector<StepWord>& words,
                                std::exception_ptr failure) {
  try {
    require_one_plan(control, words, failure);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void raise(double& most_ms, int64_t time_ns) { most_ms = std::max(most_ms, report::milliseconds(time_ns)); }

}  // namespace

StepAgreement agree(Control& control, const PlannedStep& upcoming, StepWord own,
                    report::StepMetrics& metrics) {
  own.next_step = upcoming.step ? upcoming.step->plan.step : -1;
  own.agreement = upcoming.step ? static_cast<int64_t>(upcoming.step->agreement) : 0;
  own.failure = exit_status_of(upcoming.failure);
  const std::vector<StepWord> words = control.gather(own);
  StepAgreement agreement{.last = !upcoming.step, .failure = disagreement(control, words, upcoming.failure)};
  for (const StepWord& word : words) {
    agreement.stop = agreement.stop || word.stop != 0;
    agreement.boundary = agreement.boundary || word.boundary != 0;
    agreement.step_ns = std::max(agreement.step_ns, word.step_ns);
    agreement.snapshot_ns = std::max(agreement.snapshot_ns, word.snapshot_ns);
    int64_t& between_ns = agreement.between_losses_ns;
    if (word.between_losses_ns > 0)
      between_ns = between_ns == 0 ? word.between_losses_ns : std::min(between_ns, word.between_losses_ns);
    agreement.saves.push_back(word.save);
    metrics.pull_bytes += word.pulled_bytes;
    metrics.push_bytes += word.pushed_bytes;
    metrics.ring_bytes += word.ring_bytes;
    metrics.share_bytes += word.share_bytes;
    metrics.unfused_attention += word.unfused_attention;
    metrics.corpus_bytes += word.corpus_bytes;
    metrics.peak_bytes = std::max(metrics.peak_bytes, word.peak_bytes);
    raise(metrics.link_exposed_ms, word.link_exposed_ns);
    raise(metrics.gather_exposed_ms, word.gather_exposed_ns);
    raise(metrics.overhead_ms, word.overhead_ns);
    raise(metrics.checkpoint_blocked_ms, word.blocked_ns);
  }
  metrics.snapshot_ms = report::milliseconds(agreement.snapshot_ns);
  metrics.ranks = control.world_size();
  return agreement;
}

}  // namespace sluice::train
