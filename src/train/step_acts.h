// The acts of a step: what other models do in front of the run's own (run/trunk.h), and that.
#pragma once

#include <cstdint>
#include <memory>

#include "report/step_record.h"
#include "run/critic.h"
#include "run/run_context.h"
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
  // Puts into the record what there is to tell of those in front of it.
  void describe(report::StepRecord& record) const;

 private:
  run::RunContext& run_;
  std::unique_ptr<run::Trunk> teacher_;
  std::unique_ptr<run::Critic> critic_;
  // The newest step's.
  int64_t earlier_ns_ = 0;
  runtime::StepResult critic_result_;
};

}  // namespace sluice::train
