// What ranks tell each other between two steps, and what they know together then.
#pragma once

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

// The upcoming step, nothing after the last one, or why planning it failed on this rank.
struct UpcomingStep {
  std::unique_ptr<run::PreparedStep> step;
  std::exception_ptr failure;
};

// One rank's part of it.
struct StepStatus {
  int64_t next_step = 0;
  int64_t agreement = 0;
  int64_t failure = 0;  // exit status that planning it asks for
  int64_t stop = 0;
  int64_t step_ns = 0;
  int64_t mtbf_ns = 0;   // 0: this rank has seen none
  int64_t boundary = 0;  // somebody waits to join
  run::RankStatus rank_status;
  checkpoint::SaveStatus save;
  report::RankFigures figures{};
};

struct StepAgreement {
  bool stop = false;                           // somebody asked for it
  bool boundary = false;                       // the next step is another epoch's
  bool last = false;                           // there is no upcoming step
  int64_t step_ns = 0;                         // on the slowest rank
  int64_t mtbf_ns = 0;                         // as who has seen most of them says; 0: nobody has
  std::exception_ptr failure;                  // why the upcoming step can't run; on every rank or none
  std::vector<checkpoint::SaveStatus> saves;   // how far each rank is with the save under way
  std::vector<run::RankStatus> rank_statuses;  // of each rank
};

// Collective: compares the plans of the upcoming step, and adds all ranks' words up, what `step` holds of
// this rank with them. `own` need not speak of the upcoming step.
StepAgreement agree(survive::Control& control, const UpcomingStep& upcoming, StepStatus own,
                    report::StepRecord& step);

}  // namespace sluice::train
