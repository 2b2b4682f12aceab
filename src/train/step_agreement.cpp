#include "train/step_agreement.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace sluice::train {

namespace {

// Throws on all ranks if any failed to plan the upcoming step, or if their plans differ.
void require_one_plan(survive::Control& control, const std::vector<StepStatus>& words,
                      std::exception_ptr failure) {
  std::vector<int64_t> statuses;
  for (const StepStatus& word : words) statuses.push_back(word.failure);
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

std::exception_ptr disagreement(survive::Control& control, const std::vector<StepStatus>& words,
                                std::exception_ptr failure) {
  try {
    require_one_plan(control, words, failure);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

StepAgreement agree(survive::Control& control, const UpcomingStep& upcoming, StepStatus own,
                    report::StepRecord& step) {
  own.next_step = upcoming.step ? upcoming.step->plan.step : -1;
  own.agreement = upcoming.step ? static_cast<int64_t>(upcoming.step->agreement) : 0;
  own.failure = survive::exit_status_of(upcoming.failure);
  own.figures = report::rank_figures(step);
  const std::vector<StepStatus> words = control.gather(own);
  StepAgreement agreement{.last = !upcoming.step, .failure = disagreement(control, words, upcoming.failure)};
  std::vector<report::RankFigures> figures;
  for (const StepStatus& word : words) {
    agreement.stop = agreement.stop || word.stop != 0;
    agreement.boundary = agreement.boundary || word.boundary != 0;
    agreement.step_ns = std::max(agreement.step_ns, word.step_ns);
    int64_t& between_ns = agreement.mtbf_ns;
    if (word.mtbf_ns > 0) between_ns = between_ns == 0 ? word.mtbf_ns : std::min(between_ns, word.mtbf_ns);
    agreement.saves.push_back(word.save);
    agreement.rank_statuses.push_back(word.rank_status);
    figures.push_back(word.figures);
  }
  report::fold(figures, step);
  step.ranks = control.world_size();
  return agreement;
}

}  // namespace sluice::train
