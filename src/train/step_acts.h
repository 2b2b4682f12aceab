// The acts of a step: what other models do in front of the run's own (run/trunk.h), and that.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "report/step_record.h"
#include "run/critic.h"
#include "run/run_context.h"
#include "run/step_trace.h"
#include "run/trunk.h"

namespace sluice::train {

class StepActs {
 public:
  // Collective: opens the models that the configuration names. The run is open and outlives it; its planning
  // has a teacher's act in front of training's steps from here on.
  explicit StepActs(run::RunContext& run);

  run::Critic* critic() { return critic_.get(); }  // null: there is none

  // Collective: all acts of a step, the last of which updates the run's model.
  runtime::StepResult train(const run::PreparedStep& step, const runtime::AdamW& optimizer);
  // Puts into the record what there is to tell of those in front of it, and of `result`, the last one's.
  void describe(const run::PreparedStep& step, const runtime::StepResult& result,
                report::StepRecord& record) const;
  // All of them, for a trace of the newest step. Borrows what is given.
  std::vector<run::TracedAct> traced(const run::PreparedStep& step, const runtime::StepResult& result) const;

 private:
  void note_earlier(const run::Trunk& trunk, const char* name);

  run::RunContext& run_;
  std::unique_ptr<run::Trunk> teacher_;
  std::unique_ptr<run::Critic> critic_;
  // The newest step's.
  std::optional<report::ActRecord> earlier_;
  runtime::StepTiming earlier_timing_;
  runtime::StepResult critic_result_;
};

}  // namespace sluice::train
