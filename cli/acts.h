// The acts of a planned step: the time and memory of every model's act, one after the other.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "cli/planning.h"
#include "session/earlier_act.h"
#include "session/planned_step.h"
#include "session/prompt_responses.h"

namespace sluice::cli {

class Acts {
 public:
  explicit Acts(const Planning& planning);  // borrows the planning
  Acts(const Acts&) = delete;
  Acts& operator=(const Acts&) = delete;

  // Teachers' acts, in front of training steps.
  session::EarlierActs earlier() const { return earlier_; }

  // A table with time and fullest device's memory of each act of the step, and their total time; empty if the
  // trained model is alone. `answers`: the step's responses, for a run with rollouts. Reward models and a
  // reference evaluate a rollout before its first update, in parts as large as a step's.
  std::string text(const session::BuiltStep& built, const std::vector<session::PromptResponses>& answers);

 private:
  struct Line {
    std::string name;
    int64_t ns = 0;
    int64_t bytes = 0;
  };
  Line line_of(const session::TrunkPlanning& trunk, const strategy::StepPlan& update,
               const std::vector<session::PromptResponses>& answers);

  const Planning& planning_;
  std::deque<graph::LinkPlans> teacher_links_;
  std::vector<session::EarlierAct> earlier_;
};

}  // namespace sluice::cli
