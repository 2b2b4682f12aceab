// The data that ranks exchange between two steps, and their common conclusions.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "checkpoint/background_save.h"
#include "report/step_record.h"
#include "run/plan_ahead.h"
#include "run/rank_monitor.h"
#include "survive/control.h"

namespace sluice::train {

// The upcoming step; null after the last step, or if planning failed on this rank, for which see `failure`.
struct UpcomingStep {
  std::unique_ptr<run::PreparedStep> step;
  std::exception_ptr failure;
  std::chrono::nanoseconds waited{};  // the time until it was ready
};

// One rank's contribution.
struct StepStatus {
  int64_t next_step = 0;
  int64_t agreement = 0;
  int64_t failure = 0;  // exit status if planning the upcoming step failed
  int64_t stop = 0;
  int64_t step_ns = 0;
  int64_t mtbf_ns = 0;   // mean time between failures; 0: this rank has seen none
  int64_t boundary = 0;  // a rank waits to join
  run::RankStatus rank_status;
  checkpoint::SaveStatus save;
  report::RankFigures figures{};
};

struct StepAgreement {
  bool stop = false;                           // a rank asked for it
  bool boundary = false;                       // the next step begins another membership
  bool last = false;                           // there is no upcoming step
  int64_t step_ns = 0;                         // on the slowest rank
  int64_t mtbf_ns = 0;                         // the least of the ranks'; 0: no rank has seen a failure
  std::exception_ptr failure;                  // why the upcoming step can't run; on every rank or none
  std::vector<checkpoint::SaveStatus> saves;   // by rank: progress of the current save
  std::vector<run::RankStatus> rank_statuses;  // by rank
};

// Collective: compares the ranks' plans of the upcoming step and merges their statuses; `step`
// gets all ranks' figures. agree() fills in the fields of `own` about the upcoming step.
StepAgreement agree(survive::Control& control, const UpcomingStep& upcoming, StepStatus own,
                    report::StepRecord& step);

}  // namespace sluice::train
