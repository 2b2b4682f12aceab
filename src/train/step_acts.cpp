#include "train/step_acts.h"

#include <vector>

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
  const int64_t number = step.plan.step;
  std::vector<layers::HeadRows> rows;
  if (teacher_) {
    rows = teacher_->evaluate(*step.earlier, step.tokens, base::text("running the teacher of step ", number + 1))
               .head_rows;
    note_earlier(*teacher_, "teacher");
    earlier_->predicted_peak_bytes = step.earlier_peak_bytes;
  }
  if (step.critic) {
    critic_result_ = critic_->train(*step.critic, optimizer);
    note_earlier(critic_->trunk(), "critic");
  }
  const auto running = run_.activity().nodes(base::text("running step ", number + 1));
  return run_.engine().train(step.graph, step.tokens, optimizer, teacher_ ? &rows : nullptr);
}

// Copies the act's figures, because planning may run the trunk again.
void StepActs::note_earlier(const run::Trunk& trunk, const char* name) {
  earlier_ = trunk.newest();
  earlier_->name = name;
  earlier_timing_ = trunk.newest_timing();
}

void StepActs::describe(const run::PreparedStep& step, const runtime::StepResult& result,
                        report::StepRecord& record) const {
  if (!earlier_ && record.acts.empty()) return;
  if (earlier_) {
    record.acts.push_back(*earlier_);
    (teacher_ ? record.teacher_ns : record.critic_ns) = earlier_->time_ns;
  }
  record.acts.push_back({"update", result.timing.step_ns, record.predicted_ns, result.peak_bytes,
                         step.predicted_peak_bytes});
  // Acts run one after the other.
  if (earlier_) record.predicted_ns += earlier_->predicted_ns;
  if (!critic_) return;
  record.value_loss = critic_result_.mean_loss();
  record.critic_grad_norm = critic_result_.gradient_norm;
  if (critic_result_.targets > 0)
    record.value_clip_fraction = critic_result_.notes.front() / static_cast<double>(critic_result_.targets);
}

std::vector<run::TracedAct> StepActs::traced(const run::PreparedStep& step,
                                             const runtime::StepResult& result) const {
  std::vector<run::TracedAct> acts;
  if (teacher_) acts.push_back({"teacher", *step.earlier, teacher_->cost(), earlier_timing_});
  if (step.critic) acts.push_back({"critic", step.critic->graph, critic_->trunk().cost(), earlier_timing_});
  acts.push_back({"update", step.graph, run_.planning().cost(), result.timing});
  return acts;
}

}  // namespace sluice::train
