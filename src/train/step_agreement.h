// What ranks tell each other between two steps, and what they know together then.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "checkpoint/background_save.h"
#include "report/step_metrics.h"
#include "runtime/engine.h"
#include "train/control.h"
#include "train/plan_ahead.h"

namespace sluice::train {

// The upcoming step, nothing after the last one, or why planning it failed on this rank.
struct PlannedStep {
  std::unique_ptr<PreparedStep> step;
  std::exception_ptr failure;
};

// One rank's part of it.
struct StepWord {
  int64_t next_step = 0;
  int64_t agreement = 0;
  int64_t failure = 0;  // exit status that planning it asks for
  int64_t stop = 0;
  int64_t pulled_bytes = 0;
  int64_t pushed_bytes = 0;
  int64_t ring_bytes = 0;
  int64_t share_bytes = 0;
  int64_t unfused_attention = 0;
  int64_t corpus_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t link_exposed_ns = 0;
  int64_t gather_exposed_ns = 0;
  int64_t overhead_ns = 0;
  int64_t step_ns = 0;
  int64_t snapshot_ns = 0;
  int64_t between_losses_ns = 0;  // 0: this rank has seen none
  int64_t blocked_ns = 0;         // by saves
  int64_t boundary = 0;           // somebody waits to join
  checkpoint::SaveWord save;
};

// What this rank measured of a step, before which so many calls for attention had no fused kernel.
StepWord measured(const PreparedStep& step, const runtime::StepResult& result, int64_t unfused_before);

struct StepAgreement {
  bool stop = false;                        // somebody asked for it
  bool boundary = false;                    // the next step is another epoch's
  bool last = false;                        // there is no upcoming step
  int64_t step_ns = 0;                      // on the slowest rank
  int64_t snapshot_ns = 0;                  // of the last one, likewise
  int64_t between_losses_ns = 0;            // as who has seen most of them says; 0: nobody has
  std::exception_ptr failure;               // why the upcoming step can't run; on every rank or none
  std::vector<checkpoint::SaveWord> saves;  // how far each rank is with the save under way
};

// Collective: compares the plans of the upcoming step, and adds all ranks' words up, in `metrics` too. `own`
// need not speak of the upcoming step.
StepAgreement agree(Control& control, const PlannedStep& upcoming, StepWord own,
                    report::StepMetrics& metrics);

}  // namespace sluice::train
