// Summaries of systems over all steps of a run, and a conclusion in a sentence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/run_data.h"

namespace sluice::report {

// All 0 without steps.
struct SystemSummary {
  int64_t steps = 0;
  int64_t mean_step_ns = 0;
  int64_t std_step_ns = 0;  // over the steps
  int64_t least_step_ns = 0;
  int64_t most_step_ns = 0;
  double tokens_per_s = 0;
  std::optional<double> mfu;  // over the steps that have one
  TimeShares shares;  // over all steps that have them
  int64_t peak_bytes = 0;
  int64_t predicted_peak_bytes = 0;  // over measured steps; 0: none
};
SystemSummary summary_of(const SystemRun& run);

// An act over all steps that have it.
struct ActSum {
  std::string name;
  int64_t steps = 0;
  ActRecord sum = {};  // times of all steps, memory of the fullest
};
// In the order in which they first come up; none where steps have one act.
std::vector<ActSum> act_sums(const SystemRun& run);

// A share of the ranks' time; 0 without any.
double share_of(int64_t part_ns, const TimeShares& shares);

// The index of the fastest system but the first; 0: there is none with steps.
size_t best_other(const RunData& data);

// The factor by which `other` takes longer than the first system, over the steps that both have, and its
// range over the steps.
struct SpeedUp {
  double mean = 0;  // ratio of the mean steps; 0: none in common
  double least = 0;
  double most = 0;
};
SpeedUp speed_up(const SystemRun& first, const SystemRun& other);

// Medians over the steps that have a prediction and a time. The drift that all steps share is the machine's:
// it is faster or slower than when it was measured, for example because of other work. The spread is the
// prediction's own error.
struct PredictionError {
  double error = -1;  // |predicted ÷ measured − 1|; −1: no step has both
  double drift = 1;   // measured ÷ predicted
  double spread = 0;  // |drift·predicted ÷ measured − 1|
};
PredictionError prediction_error(const SystemRun& run);

// "4 ranks, from step 6 on 2, from step 19 on 4" for steps in their order; "" for a single membership.
std::string memberships_text(const std::vector<StepRecord>& steps);

// "64 A800", "4 ranks"; empty when nothing is known.
std::string machine_of(const RunData& data);

// The conclusion of the run in a sentence, and its reasons in one or two more. REQUIRES: a system.
struct Verdict {
  std::string headline;
  std::string detail;
};
Verdict verdict_of(const RunData& data);

}  // namespace sluice::report
