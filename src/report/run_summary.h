// How systems did over all steps of a run, and what follows from it in a sentence.
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
  std::optional<double> mfu;  // of the steps that have one
  TimeShares shares;  // of all steps that have them
  int64_t peak_bytes = 0;
  int64_t predicted_peak_bytes = 0;  // of measured steps; 0: none
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

// How many times as long `other` takes as the first system, over the steps that both have, and how that
// varies from step to step.
struct SpeedUp {
  double mean = 0;  // of the mean steps; 0: none in common
  double least = 0;
  double most = 0;
};
SpeedUp speed_up(const SystemRun& first, const SystemRun& other);

// Medians over the steps that have a prediction and a time. What all steps take alike of their prediction is
// the machine, which is faster or slower than when it was measured, beside other work say; the rest is the
// prediction's.
struct PredictionError {
  double error = -1;  // |predicted ÷ measured − 1|; −1: no step has both
  double drift = 1;   // measured ÷ predicted
  double spread = 0;  // |drift·predicted ÷ measured − 1|
};
PredictionError prediction_error(const SystemRun& run);

// "4 ranks, from step 6 on 2, from step 19 on 4" of steps in their order; "" where all are of one epoch.
std::string memberships_text(const std::vector<StepRecord>& steps);

// "64 A800", "4 ranks"; empty when nothing is known.
std::string machine_of(const RunData& data);

// What the run says, in a sentence, and what stands behind it in one or two more. REQUIRES: a system.
struct Verdict {
  std::string headline;
  std::string detail;
};
Verdict verdict_of(const RunData& data);

}  // namespace sluice::report
