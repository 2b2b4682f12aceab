// The acts of a planned step: what every model of it takes, one behind the other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/planning.h"
#include "session/earlier_act.h"
#include "session/planned_step.h"
#include "session/prompt_responses.h"

namespace sluice::cli {

class Acts {
 public:
  explicit Acts(const Planning& planning);  // borrowed
  Acts(const Acts&) = delete;
  Acts& operator=(const Acts&) = delete;

  // A teacher's, in front of training steps; null: there is none.
  const session::EarlierAct* earlier() const { return earlier_ ? &*earlier_ : nullptr; }

  // A table with the time and the fullest device's memory of each act of the step, and the time of those in it
  // together; empty where the trained model is alone. `answers`: what the step's responses are, of a run with
  // rollouts. Reward models score a rollout before its first update, in parts as large as a step's.
  std::string text(const session::BuiltStep& built, const std::vector<session::PromptResponses>& answers);

 private:
  struct Line {
    std::string name;
    int64_t ns = 0;
    int64_t bytes = 0;
  };
  Line line_of(const session::TrunkPlanning& trunk, int64_t step,
               const std::vector<session::PromptResponses>& answers);

  const Planning& planning_;
  graph::LinkPlans teacher_links_;
  std::optional<session::EarlierAct> earlier_;
};

}  // namespace sluice::cli
