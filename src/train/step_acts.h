// The acts of a step: those of other models before the run's own (run/trunk.h), and the run's own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "report/step_record.h"
#include "run/critic.h"
#include "run/run_context.h"
#include "run/step_trace.h"
#include "run/trunk.h"

namespace sluice::train {

class StepActs {
 public:
  // Collective: opens the models that the configuration names. `run` is open and outlives
  // this; its planning adds the teachers' acts before training's steps from now on.
  explicit StepActs(run::RunContext& run);

  run::Critic* critic() { return critic_.get(); }  // null: there is none

  // Collective: all acts of a step, the last of which updates the run's model.
  runtime::StepResult train(const run::PreparedStep& step, const runtime::AdamW& optimizer);
  // Adds to the record the figures of earlier acts, and of `result`, the last act's.
  void describe(const run::PreparedStep& step, const runtime::StepResult& result,
                report::StepRecord& record) const;
  // All acts, for a trace of the newest step. Borrows the arguments.
  std::vector<run::TracedAct> traced(const run::PreparedStep& step, const runtime::StepResult& result) const;

 private:
  runtime::TeacherRows teach(const run::PreparedStep& step);
  void note_earlier(const run::Trunk& trunk);

  run::RunContext& run_;
  std::vector<std::unique_ptr<run::Trunk>> teachers_;
  std::unique_ptr<run::Critic> critic_;
  // The newest step's figures.
  std::vector<report::ActRecord> earlier_;
  std::vector<runtime::StepTiming> earlier_timings_;
  runtime::StepResult critic_result_;
};

}  // namespace sluice::train
