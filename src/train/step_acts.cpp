#include "train/step_acts.h"

#include <vector>

#include "base/steady_time.h"
#include "base/text.h"

namespace sluice::train {

StepActs::StepActs(run::RunContext& run) : run_(run) {
  std::vector<session::OtherModel> teachers;
  run.control().together("opening the teacher", [&] { teachers = session::teachers(run.config()); });
  for (const session::OtherModel& model : teachers) {
    teacher_ = std::make_unique<run::Trunk>(run, model, run::Trunk::Options{.leaves_head_rows = true});
    teacher_->load();
    run.planning().set_earlier(teacher_->act());
  }
  if (run.config().rl.algorithm == config::RlAlgorithm::kPpo) critic_ = std::make_unique<run::Critic>(run);
}

runtime::StepResult StepActs::train(const run::PreparedStep& step, const runtime::AdamW& optimizer) {
  const int64_t begin_ns = base::now_ns();
  const int64_t number = step.plan.step;
  std::vector<layers::HeadRows> rows;
  if (teacher_) {
    rows = teacher_->evaluate(*step.earlier, step.tokens, base::text("running the teacher of step ", number))
               .head_rows;
  }
  if (step.critic) critic_result_ = critic_->train(*step.critic, optimizer);
  earlier_ns_ = base::now_ns() - begin_ns;
  const auto running = run_.activity().nodes(base::text("running step ", number));
  return run_.engine().train(step.graph, step.tokens, optimizer, teacher_ ? &rows : nullptr);
}

void StepActs::describe(report::StepRecord& record) const {
  if (teacher_) record.teacher_ns = earlier_ns_;
  if (!critic_) return;
  record.critic_ns = earlier_ns_;
  record.value_loss = critic_result_.mean_loss();
  record.critic_grad_norm = critic_result_.gradient_norm;
  if (critic_result_.targets > 0)
    record.value_clip_fraction = critic_result_.notes.front() / static_cast<double>(critic_result_.targets);
}

}  // namespace sluice::train
